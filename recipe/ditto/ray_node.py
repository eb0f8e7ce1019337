"""`python -m recipe.ditto.ray_node --rank R --nodes N --head HOST:PORT -- COMMAND...`: one node of a Ray cluster.

Run it on every node, with the same words except for --rank; recipe/ditto/slurm/ditto.sbatch does. Node 0 starts Ray's
head, waits until all nodes are there, and runs COMMAND, which finds the cluster in RAY_ADDRESS. The cluster ends with
the command, and every node ends with the cluster.

`ray symmetric-run` does the same except for what matters here: it ends Ray at SIGTERM, before the step is saved; it
calls `ray stop`, which ends other clusters on these machines too; and it ends with 0 where Ray could not start. Here
SIGTERM and Ctrl-C belong to COMMAND, which gets them with its process group, and Ray is shielded from them. Exit codes:
COMMAND's; 1 if the cluster could not start.
"""

import os
import shlex
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress

from ditto.run import ray_private
from ditto.run.stop_signals import Stopped, StopSignals, kill, processes_below, shield_children
from soul.cli.arguments import non_negative_int, positive_float, positive_int
from soul.cli.error_border import FAILED, Parser, reports_errors
from soul.errors import SoulError

POLL_S = 1.0
GONE_S = 15.0  # the head is gone when it has not answered for so long
LIMIT_S = 600.0  # nodes of one job may start minutes apart


class NoCluster(SoulError):
    """The nodes could not form a Ray cluster."""

    exit_code = FAILED


def start_words(rank: int, head: str, options: Sequence[str] = ()) -> list[str]:
    """The `ray start` command of a node."""
    host, _, port = head.rpartition(":")
    here = ["--head", f"--node-ip-address={host}", f"--port={port}"] if rank == 0 else [f"--address={head}"]
    ray = [sys.executable, "-m", "ray.scripts.scripts", "start"]  # this environment's, whatever is on the PATH
    return [*ray, *here, "--block", "--disable-usage-stats", *options]


@contextmanager
def ray_started(words: Sequence[str]) -> Iterator[subprocess.Popen[bytes]]:
    """Ray on this node, inside this block."""
    with shield_children():
        ray = subprocess.Popen(words, stdin=subprocess.DEVNULL)
    try:
        yield ray
    finally:
        below = processes_below(ray.pid)
        ray.kill()
        kill(below)
        ray.wait()


def answers(head: str) -> bool:
    """True if something listens at the head's address."""
    host, _, port = head.rpartition(":")
    with suppress(OSError):
        socket.create_connection((host, int(port)), timeout=POLL_S).close()
        return True
    return False


def wait_until(true: Callable[[], bool], limit_s: float, ray: subprocess.Popen[bytes] | None, what: str) -> None:
    """Wait for a state of the cluster. Raises NoCluster: Ray has ended on this node, or the time is over."""
    deadline = time.monotonic() + limit_s
    while not true():
        if ray is not None and ray.poll() is not None:
            raise NoCluster(f"`ray start` ended with code {ray.returncode} on this node; its output says why.")
        if time.monotonic() > deadline:
            raise NoCluster(f"{what} after {limit_s:g} s (--limit-s). Look at the output of the other nodes.")
        time.sleep(POLL_S)


def run_head(nodes: int, head: str, words: Sequence[str], limit_s: float, command: Sequence[str]) -> int:
    """Start the head, wait for all nodes, and run the command. Returns its exit code."""
    import ray

    def joined() -> bool:
        return sum(node["Alive"] for node in ray.nodes()) >= nodes

    with StopSignals() as signals, ray_started(words) as process:
        wait_until(lambda: answers(head), limit_s, process, f"Ray's head at {head} does not answer")
        with shield_children():  # ray.init and ray.shutdown replace the signals' handlers
            ray.init(address=head, log_to_driver=False, logging_level="ERROR")
        wait_until(joined, limit_s, process, f"{nodes} nodes have not joined {head}")
        with shield_children():
            ray.shutdown()
        print(f"Ray is running on {nodes} nodes at {head}", flush=True)
        signals.only_record()
        code = subprocess.call(command, env={**os.environ, "RAY_ADDRESS": head})
    return code if code >= 0 else 128 - code  # as a shell says it


def run_worker(head: str, words: Sequence[str], limit_s: float) -> int:
    """Join the head, and stay until it is gone. Returns an exit code."""
    with StopSignals() as signals:
        wait_until(lambda: answers(head), limit_s, None, f"Ray's head at {head} does not answer")
        signals.only_record()
        with ray_started(words) as ray:
            last_answer = time.monotonic()
            # The first signal is the training's, which saves its step on this node too.
            while len(signals.received) < 2 and time.monotonic() - last_answer < GONE_S:
                time.sleep(POLL_S)
                if answers(head):
                    last_answer = time.monotonic()
                    if ray.poll() is not None:
                        raise NoCluster(f"Ray has ended with code {ray.returncode} on this node, before the head.")
    return 0


@reports_errors
def main(arguments: Sequence[str] | None = None) -> int:
    """Run this node. Returns the exit code."""
    parser = Parser(prog="python -m recipe.ditto.ray_node", description=__doc__)
    parser.add_argument("--rank", type=non_negative_int, required=True, help="number of this node, from 0 on")
    parser.add_argument("--nodes", type=positive_int, required=True, help="how many nodes the cluster has")
    parser.add_argument("--head", required=True, metavar="HOST:PORT", help="address of node 0, for Ray")
    parser.add_argument("--ray", default="", metavar="WORDS", help='more words for `ray start` (--ray="--num-cpus=96")')
    parser.add_argument("--limit-s", type=positive_float, default=LIMIT_S, help="for the nodes to find each other")
    parser.add_argument("command", nargs="+", metavar="COMMAND", help="what node 0 runs on the cluster, after --")
    given = parser.parse_args(arguments)
    if not given.head.rpartition(":")[0] or not given.head.rpartition(":")[2].isdecimal():
        parser.error(f"--head {given.head}: write HOST:PORT")
    # `ray start` decides by this rule for the cluster alone: drivers would join it without the token.
    os.environ["RAY_AUTH_MODE"] = "token" if ray_private.uses_token() else "disabled"
    words = start_words(given.rank, given.head, shlex.split(given.ray))
    try:
        if given.rank == 0:
            return run_head(given.nodes, given.head, words, given.limit_s, given.command)
        return run_worker(given.head, words, given.limit_s)
    except Stopped as stop:
        return stop.exit_code


if __name__ == "__main__":
    sys.exit(main())
