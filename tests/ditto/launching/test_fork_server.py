"""Workers that are forked, with real processes: only Ray and the long imports are missing (tests/e2e has them)."""

import json
import os
import shlex
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from ditto.launching import fork_server

# Stands in for the raylet: starts the server on an inherited socket, prints its process id, and waits to be ended.
RAYLET = """
import os, subprocess, sys
server = subprocess.Popen([sys.executable, "-c", sys.argv[1]], pass_fds=[int(sys.argv[2])])
os.close(int(sys.argv[2]))
print(server.pid, flush=True)
sys.stdin.read()
"""
WORKER = """
import json, os, random, sys
import numpy as np
import ray  # changes sys.path
facts = {"parent": os.getppid(), "group": os.getpgid(0) == os.getpid(), "arguments": sys.argv, "folder": os.getcwd()}
facts |= {"variables": dict(os.environ), "script": __name__, "forked": "colorsys" in sys.modules}
facts["path"] = sys.path
facts |= {"random": [random.random(), np.random.random()]}
if torch := sys.modules.get("torch"):
    facts["random"].append(float(torch.rand(())))
    facts["threads"] = torch.get_num_threads()
print(json.dumps(facts), flush=True)
sys.exit("from the worker")
"""

SET_BY_RAY = "RAY_CLIENT_MODE"  # an environment variable that `import ray` sets
ROOT = Path(__file__).resolve().parents[3]
Start = Callable[..., dict[str, object]]


@pytest.fixture
def sockets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("s")  # a short path


def wait_for(path: Path) -> None:
    deadline = time.monotonic() + 30
    while not path.exists():
        assert time.monotonic() < deadline, f"no {path}"
        time.sleep(0.01)


@pytest.fixture
def server(sockets: Path) -> Iterator[tuple[subprocess.Popen[str], psutil.Process]]:
    """The raylet's stand-in and the server, which imports colorsys and torch, but neither verl nor vLLM."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(sockets / "fork"))
    listener.listen()
    file = listener.fileno()
    imports = ["colorsys", "numpy", "torch"]
    serving = f"""from ditto.launching import fork_server
fork_server._REQUEST_S = 0.5
fork_server.main({file}, {imports!r})"""
    command = [sys.executable, "-c", RAYLET, serving, str(file)]
    environment = {name: value for name, value in os.environ.items() if name != SET_BY_RAY}
    raylet = subprocess.Popen(
        command, env=environment, pass_fds=[file], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    listener.close()
    assert raylet.stdout is not None
    process = psutil.Process(int(raylet.stdout.readline()))
    yield raylet, process
    raylet.kill()
    raylet.communicate()
    if process.is_running():
        process.kill()


@pytest.fixture
def start(sockets: Path, tmp_path: Path) -> Start:
    """Start a worker as Ray does; get what it says about itself, and what it wrote to standard error."""
    script = tmp_path / "worker.py"
    script.write_text(WORKER)

    def run(folder: Path = tmp_path, **environment: str) -> dict[str, object]:
        command = [*shlex.split(fork_server.command()), str(script), f"--raylet-name={sockets / 'raylet'}", "--a=b c"]
        worker = subprocess.Popen(
            command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        printed, complaint = worker.communicate(timeout=60)  # until the forked process has closed its output too
        return {**json.loads(printed), "complaint": complaint}

    return run


def test_a_forked_worker_is_like_one_of_its_own(
    start: Start, server: tuple[subprocess.Popen[str], psutil.Process], sockets: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "another"
    folder.mkdir()
    variables = {"RAY_JOB_ID": "01", "PATH": "/nowhere", "LC_ALL": "C.UTF-8"}  # with a locale, Python adds none
    worker = start(folder, **variables)
    script = str(tmp_path / "worker.py")
    assert worker["parent"] == server[1].pid and worker["forked"] and worker["group"]
    assert worker["arguments"] == [script, f"--raylet-name={sockets / 'raylet'}", "--a=b c"]
    assert worker["folder"] == str(folder) and worker["script"] == "__main__"
    has = worker["variables"]
    assert isinstance(has, dict) and "PYTEST_CURRENT_TEST" not in has
    assert list(has.items())[:3] == list(variables.items())
    assert SET_BY_RAY in list(has)[3:]  # behind them are the variables that imports have set
    assert worker["complaint"] == "from the worker\n"  # the end of an ordinary script: Python prints, and exits


def test_each_worker_has_random_numbers_of_its_own(
    start: Start, server: tuple[subprocess.Popen[str], psutil.Process]
) -> None:
    first, second = (start()["random"] for _ in range(2))
    assert isinstance(first, list) and isinstance(second, list)
    assert not set(first) & set(second)


def test_the_server_survives_a_broken_request_and_ends_with_the_raylet(
    start: Start, server: tuple[subprocess.Popen[str], psutil.Process], sockets: Path
) -> None:
    raylet, process = server
    whole = json.dumps({"arguments": [os.devnull], "folder": "/", "environment": {}}).encode()
    process.suspend()  # so that the other end is closed before it answers
    for length, body in ((0, b""), (100, b"{"), (len(whole), whole)):
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(str(sockets / "fork"))
            socket.send_fds(connection, [length.to_bytes(8)], [0, 1, 2])
            connection.sendall(body)
    silent = socket.socket(socket.AF_UNIX)
    silent.connect(str(sockets / "fork"))  # never asks for anything
    process.resume()
    assert start()["parent"] == process.pid
    silent.close()
    files = process.num_fds()
    assert start()["parent"] == process.pid
    psutil.wait_procs(process.children(), timeout=20)
    assert process.num_fds() == files and not process.children()  # neither files nor dead workers add up
    raylet.kill()
    raylet.wait()
    deadline = time.monotonic() + 20
    while process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < deadline, "the server outlived the raylet"
        time.sleep(0.05)


@pytest.mark.e2e
def test_the_first_worker_becomes_the_server_and_imports_what_a_run_needs(
    start: Start, sockets: Path, tmp_path: Path
) -> None:
    """The real imports, from a folder with a file that has a library's name."""
    folder = tmp_path / "of_the_user"
    folder.mkdir()
    (folder / "datasets.py").write_text("raise RuntimeError('imported from the current folder')")
    packages = os.pathsep.join(str(ROOT / part) for part in ("agents", "verl", "."))
    environment = {"PYTHONPATH": packages, "OMP_NUM_THREADS": "1", "VERL_PLATFORM": "cpu", "LC_ALL": "C.UTF-8"}
    first = tmp_path / "first.py"
    first.touch()
    command = [*shlex.split(fork_server.command()), str(first), f"--raylet-name={sockets / 'raylet'}"]
    with (tmp_path / "log").open("w") as log:  # the server keeps it open
        subprocess.Popen(command, cwd=folder, env=environment, stdout=log, stderr=log)
    try:
        wait_for(sockets / "fork")
        forked = [start(folder, **environment) for _ in range(2)]
    finally:
        servers = [child for child in psutil.Process().children() if "fork_server" in " ".join(child.cmdline())]
        for child in servers:
            child.kill()
            child.wait(20)
    (server,) = servers
    plain = start(folder, **environment)
    for worker in forked:
        assert worker["parent"] == server.pid, worker["complaint"]
        path, its_own = worker["path"], plain["path"]
        assert isinstance(path, list) and isinstance(its_own, list)
        assert path[: len(its_own)] == its_own  # imports append to it
        assert worker["threads"] == 1
    assert plain["parent"] == os.getpid()


BROKEN = {  # what an import must not do, and the complaint of the server
    "import nowhere_to_be_found": "No module named 'nowhere_to_be_found'",
    "import threading; threading.Thread(target=threading.Event().wait, daemon=True).start()": "has started a thread",
    "import ray; ray.NodeID.from_random()": "has used Ray's generator of random ids",
}


@pytest.mark.parametrize("code", BROKEN)
def test_a_worker_starts_from_nothing_where_the_server_fails(
    code: str, start: Start, sockets: Path, tmp_path: Path
) -> None:
    (tmp_path / "broken.py").write_text(code)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(sockets / "fork"))
    listener.listen()
    serving = f"from ditto.launching import fork_server; fork_server.main({listener.fileno()}, ['broken'])"
    failing = subprocess.Popen(
        [sys.executable, "-c", serving],
        pass_fds=[listener.fileno()],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])},
        stderr=subprocess.PIPE,
        text=True,
    )
    listener.close()
    waiting, later = start(), start()  # one asks while the server imports, one after its end
    assert BROKEN[code] in failing.communicate(timeout=60)[1]
    for worker in (waiting, later):
        assert not worker["forked"] and "a worker starts from nothing" in str(worker["complaint"])


def test_workers_draw_ids_of_their_own_although_an_actor_class_is_imported() -> None:
    """Ray gives an actor class a random id, and its first id seeds all later ones of the process and of its forks."""
    code = """
import ray
from ditto.launching import fork_server
if KEEP:
    fork_server._keep_rays_generator_unused()
ray.remote(type("Actor", (), {}))
print(len({fork_server._id_drawn_in_a_fork() for _ in range(3)}))
"""
    for keep, different in ((True, 3), (False, 1)):
        command = [sys.executable, "-c", code.replace("KEEP", str(keep))]
        printed = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
        assert int(printed) == different, f"KEEP={keep}"
