"""Fork Ray's workers from one process that has imported torch, verl and vLLM, so that they are imported once.

A run on a CPU has about nine workers. Each would spend up to 12 s on imports. That is most of a run's start-up time on
two cores (docs/measurements/steps.md). Ray starts a worker with the command `runtime_env.py_executable` in place of
`python`. On a CPU that is this file:

    raylet ─ python fork_server.py default_worker.py ...    `request_worker`: asks the server for a fork, and ends
           └ the server                                     `serve`: imports, then forks a process for each request
             ├ the worker: runs default_worker.py, with the request's arguments, environment and output
             └ ...

The first request of a node finds no server and becomes it. So the server is a child of the raylet, as it must be: Ray's
libraries read the node's address and token from the environment when they are imported. A worker that finds no working
server starts from nothing, as it would without this file; logs/raylet.err in Ray's session folder has the reason. On
GPUs nothing is forked: there a run has cores enough to import in parallel, and we have not tried whether CUDA's
libraries survive a fork.

Do not import anything but the standard library at the top: a request should take a hundredth of a second.
"""

import contextlib
import gc
import importlib
import json
import os
import runpy
import select
import shlex
import signal
import socket
import struct
import sys
import threading
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass

# What the workers of a run import: trainer, actor, agent loop, rollout server, queue.
IMPORTS = (
    *("ditto.task_runner", "ditto.trainer_modes", "ditto.verl_hooks.actor_worker", "ditto.rollout.agent_loop"),
    *("verl.workers.rollout.vllm_rollout.vllm_async_server", "transfer_queue"),
)
_POLL_S = 1.0  # how often the server checks whether the raylet still lives
_REQUEST_S = 10.0  # how long a request may take to arrive
_SIZE_BYTES = 8  # a request's length, in front of it


@dataclass(frozen=True, slots=True)
class Request:
    """Everything that a worker's process starts with. Its standard streams are sent separately, as file descriptors."""

    arguments: list[str]  # the script first
    folder: str
    environment: dict[str, str]


def command() -> str:
    """The value of `runtime_env.py_executable`: a shell command that takes the arguments of `python`."""
    # Without site-packages and PYTHON* variables, a request starts five times as fast.
    return shlex.join([sys.executable, "-S", "-E", os.path.abspath(__file__)])


def request_worker(arguments: Sequence[str]) -> None:
    """Ask the server to fork a worker, and end. Without a server, this process becomes it.

    If the server fails, this process becomes the worker.

    Args:
        arguments: of a Ray worker, beginning with its script; --raylet-name is in the folder of the node's sockets.
    """
    raylet = next(word for word in arguments if word.startswith("--raylet-name=")).partition("=")[2]
    path = os.path.join(os.path.dirname(raylet), "fork")  # short: a socket's path has at most 107 characters
    request = Request(list(arguments), os.getcwd(), dict(os.environ))
    try:
        listener = _listen(path)
        if listener is not None and os.fork():  # the child asks its parent for the worker
            os.set_inheritable(listener.fileno(), True)
            # `-c` puts the current folder first. A worker has its script's folder there, and no import from the other.
            path_first = f"import sys; sys.path[0] = {os.path.dirname(arguments[0])!r}"
            serving = f"from ditto.launching import fork_server; fork_server.main({listener.fileno()})"
            os.execv(sys.executable, [sys.executable, "-c", f"{path_first}; {serving}"])
        if listener is not None:
            listener.close()
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(path)
            if not _same_user(connection):  # everybody may write into Ray's folder of sockets
                raise ConnectionError("it belongs to another user")
            body = json.dumps(asdict(request)).encode()
            socket.send_fds(connection, [len(body).to_bytes(_SIZE_BYTES)], [0, 1, 2])
            connection.sendall(body)
            if not connection.recv(1):
                raise ConnectionError("it ended")
    except OSError as error:
        print(f"no fork server at {path} ({error}): a worker starts from nothing", file=sys.stderr, flush=True)
        os.execv(sys.executable, [sys.executable, *arguments])


def _same_user(connection: socket.socket) -> bool:
    """True if the process at the other end runs as this user."""
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    _pid, user, _group = struct.unpack("3i", credentials)
    return bool(user == os.getuid())


def _listen(path: str) -> socket.socket | None:
    """A listening socket at the path, or None if another process has been faster."""
    if os.path.exists(path):
        return None
    listener, mine = socket.socket(socket.AF_UNIX), f"{path}.{os.getpid()}"
    listener.bind(mine)
    listener.listen(128)
    try:
        os.link(mine, path)  # only now can others see it, and only one process can succeed
    except FileExistsError:
        listener.close()
        return None
    finally:
        os.unlink(mine)
    return listener


def serve(listener: socket.socket, imports: Sequence[str]) -> Request | None:
    """Import the modules, then fork a process for each request, until the raylet is gone.

    Returns:
        In each forked process its request, with environment, folder and output set; None in the server, at the end.

    Raises:
        RuntimeError: an import has started a Python thread, which forks would lose, or has used Ray's generator of ids.
    """
    raylet = int(os.environ.get("RAY_RAYLET_PID", os.getppid()))
    inherited = set(os.environ)
    _keep_rays_generator_unused()
    for name in imports:
        importlib.import_module(name)
    if threading.active_count() > 1:
        raise RuntimeError(f"nothing can be forked: an import has started a thread ({threading.enumerate()})")
    if _id_drawn_in_a_fork() == _id_drawn_in_a_fork():
        raise RuntimeError("nothing can be forked: an import has used Ray's generator of random ids")
    gc.collect()
    gc.freeze()  # workers then share these pages for good: their collector does not write to them
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel then removes workers that have ended
    while os.getppid() == raylet:
        if not select.select([listener], [], [], _POLL_S)[0]:
            continue
        connection, _ = listener.accept()
        with connection, contextlib.ExitStack() as output:
            received = _receive(connection) if _same_user(connection) else None
            if received is None:
                continue
            request, files = received
            for file in files:
                output.callback(os.close, file)
            if os.fork():
                with contextlib.suppress(ConnectionError):  # the process that asked has been killed
                    connection.sendall(b"1")
                continue
            for number, file in enumerate(files):
                os.dup2(file, number)
        listener.close()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        _become(request, inherited)
        return request
    return None


def _keep_rays_generator_unused() -> None:
    """Let the ids of actor classes, which are drawn when they are imported, come from the kernel.

    The first id seeds Ray's generator, once for all processes that are forked later, and they would draw the same ids.
    Equal task ids from two agent-loop workers crash vLLM's server.
    """
    import ray.actor

    class FromTheKernel(ray.ActorClassID):
        @classmethod
        def from_random(cls) -> ray.ActorClassID:
            return ray.ActorClassID(os.urandom(cls.size()))

    ray.actor.ActorClassID = FromTheKernel


def _id_drawn_in_a_fork() -> bytes:
    """A random id of Ray's, drawn in a forked process that then ends."""
    import ray

    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.write(writing, ray.NodeID.from_random().binary())
        finally:
            os._exit(0)
    os.close(writing)
    with open(reading, "rb") as pipe:
        drawn = pipe.read()
    os.waitpid(pid, 0)
    return drawn


def _receive(connection: socket.socket) -> tuple[Request, list[int]] | None:
    """A request and its standard input, output and error; None if it is broken or does not arrive in time."""
    connection.settimeout(_REQUEST_S)
    files: list[int] = []
    try:
        head, files, _, _ = socket.recv_fds(connection, _SIZE_BYTES, 3)
        with connection.makefile("rb") as stream:
            body = stream.read(int.from_bytes(head))
        return Request(**json.loads(body)), files
    except (ValueError, TypeError, OSError):
        for file in files:
            os.close(file)
        return None


def _become(request: Request, inherited: Iterable[str]) -> None:
    """Take over what a process of its own would have had from its start.

    Args:
        inherited: the environment variables that the server started with. Those that its imports have set remain.
    """
    import numpy as np

    os.setpgid(0, 0)  # Ray may end a worker's whole process group
    os.chdir(request.folder)
    set_by_imports = {name: value for name, value in os.environ.items() if name not in inherited}
    os.environ.clear()
    # The worker's variables come first, as in a process of its own. vLLM's engine inherits this order. Its setproctitle
    # looks for the title's memory in front of the first variable, and fails if an import has set that variable again.
    os.environ.update(request.environment)
    for name, value in set_by_imports.items():
        os.environ.setdefault(name, value)
    sys.argv = list(request.arguments)
    # Python's own generator is seeded anew by every fork.
    np.random.seed()  # noqa: NPY002 (the global generator is meant)
    if "torch" in sys.modules:
        sys.modules["torch"].seed()


def main(listening_socket: int, imports: Sequence[str] = IMPORTS) -> None:
    """Serve on the socket with this file descriptor. A forked process runs its worker's script here."""
    request = serve(socket.socket(fileno=listening_socket), imports)
    if request is not None:
        runpy.run_path(request.arguments[0], run_name="__main__")


if __name__ == "__main__":
    request_worker(sys.argv[1:])
