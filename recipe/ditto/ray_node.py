"""`python -m recipe.ditto.ray_node --rank R --nodes N --head HOST:PORT -- COMMAND...`: one node of a Ray cluster.

Run it on every node, with the same words except for --rank; recipe/ditto/slurm/ditto.sbatch and
recipe/ditto/skypilot/ditto.yaml do. Node 0 starts Ray's head, waits until all nodes are there, and runs COMMAND, which
finds the cluster in RAY_ADDRESS. The cluster ends with the command, and every node ends with the cluster. Other Ray
clusters on these machines are left alone.

SIGTERM and Ctrl-C belong to COMMAND, which gets them with its process group: a training then saves its step. Ray is
shielded from them, because the step could not end without it. Exit codes: COMMAND's; 1 if the cluster could not start.
"""

from __future__ import annotations

import os
import shlex
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from ray._private.authentication.authentication_token_setup import maybe_enable_token_auth_if_token_available

from ditto.launching import process_tree
from ditto.run.stop_signals import Stopped, StopSignals, shield_children
from soul.cli.arguments import non_negative_int, positive_float, positive_int
from soul.cli.error_border import FAILED, Parser, reports_errors
from soul.errors import SoulError

POLL_S = 1.0
GONE_S = 15.0  # the head is gone when it has not answered for so long
LIMIT_S = 600.0  # nodes of one job may start minutes apart


class NoCluster(SoulError):
    """The nodes could not form a Ray cluster."""

    exit_code = FAILED


@dataclass(frozen=True)
class Node:
    """What this node is.

    Attributes:
        head: host and port of Ray's head.
        options: further words for `ray start`.
        limit_s: how long the nodes may take to find each other.
    """

    rank: int
    nodes: int
    head: str
    options: Sequence[str] = ()
    limit_s: float = LIMIT_S

    def start_words(self) -> list[str]:
        """The `ray start` command of this node."""
        host, _, port = self.head.rpartition(":")
        here = (
            ["--head", f"--node-ip-address={host}", f"--port={port}"] if self.rank == 0 else [f"--address={self.head}"]
        )
        ray = [sys.executable, "-m", "ray.scripts.scripts", "start"]  # this environment's, whatever is on the PATH
        return [*ray, *here, "--block", "--disable-usage-stats", *self.options]

    def head_answers(self) -> bool:
        """Whether something listens at the head's address."""
        host, _, port = self.head.rpartition(":")
        with suppress(OSError):
            socket.create_connection((host, int(port)), timeout=POLL_S).close()
            return True
        return False


def agree_on_authentication() -> None:
    """Set RAY_AUTH_MODE by the rule of `ray start`: a token is used where there is one.

    `ray start` decides this for the cluster alone. Without the variable, drivers would join it without the token.
    """
    uses_token = maybe_enable_token_auth_if_token_available(warn_if_disabled=False)
    os.environ["RAY_AUTH_MODE"] = "token" if uses_token else "disabled"


@contextmanager
def ray_started(node: Node) -> Iterator[subprocess.Popen[bytes]]:
    """Ray on this node, inside this block."""
    with shield_children():
        ray = subprocess.Popen(node.start_words(), stdin=subprocess.DEVNULL)
    try:
        yield ray
    finally:
        below = process_tree.below(ray.pid)
        ray.kill()
        process_tree.kill(below)
        ray.wait()


def wait_until(true: Callable[[], bool], node: Node, ray: subprocess.Popen[bytes] | None, what: str) -> None:
    """Wait for a state of the cluster.

    Raises:
        NoCluster: Ray has ended on this node, or the time is over.
    """
    deadline = time.monotonic() + node.limit_s
    while not true():
        if ray is not None and ray.poll() is not None:
            raise NoCluster(f"`ray start` ended with code {ray.returncode} on node {node.rank}; its output says why.")
        if time.monotonic() > deadline:
            raise NoCluster(f"{what} after {node.limit_s:g} s (--limit-s). Look at the output of the other nodes.")
        time.sleep(POLL_S)


def wait_for_nodes(node: Node, process: subprocess.Popen[bytes]) -> None:
    """Wait until all nodes have joined the cluster.

    Raises:
        NoCluster: some have not in time.
    """
    import ray

    with shield_children():  # ray.init replaces the signals' handlers
        ray.init(address=node.head, log_to_driver=False, logging_level="ERROR")

    def joined() -> bool:
        return sum(each["Alive"] for each in ray.nodes()) >= node.nodes

    try:
        wait_until(joined, node, process, f"{node.nodes} nodes have not joined {node.head}")
    finally:
        ray.shutdown()


def run_head(node: Node, command: Sequence[str], signals: StopSignals) -> int:
    """Start the head, wait for all nodes, and run the command. Returns its exit code.

    Raises:
        Stopped: a signal arrived before the command began.
    """
    with ray_started(node) as ray:
        wait_until(node.head_answers, node, ray, f"Ray's head at {node.head} does not answer")
        wait_for_nodes(node, ray)
        print(f"Ray is running on {node.nodes} nodes at {node.head}", flush=True)
        signals.only_record()
        code = subprocess.call(command, env={**os.environ, "RAY_ADDRESS": node.head})
    return code if code >= 0 else 128 - code  # as a shell says it


def run_worker(node: Node, signals: StopSignals) -> int:
    """Join the head, and stay until it is gone. Returns an exit code.

    Raises:
        Stopped: a signal arrived before Ray was started.
    """
    wait_until(node.head_answers, node, None, f"Ray's head at {node.head} does not answer")
    signals.only_record()
    with ray_started(node) as ray:
        last_answer = time.monotonic()
        # The first signal is the training's, which saves its step on this node too.
        while len(signals.received) < 2 and time.monotonic() - last_answer < GONE_S:
            time.sleep(POLL_S)
            if node.head_answers():
                last_answer = time.monotonic()
                if ray.poll() is not None:
                    raise NoCluster(f"Ray has ended with code {ray.returncode} on node {node.rank}, before the head.")
    return 0


@reports_errors
def main(arguments: Sequence[str] | None = None) -> int:
    """Run this node. Returns the exit code."""
    parser = Parser(prog="python -m recipe.ditto.ray_node", description=__doc__)
    parser.add_argument("--rank", type=non_negative_int, required=True, help="number of this node, from 0 on")
    parser.add_argument("--nodes", type=positive_int, required=True, help="how many nodes the cluster has")
    parser.add_argument("--head", required=True, metavar="HOST:PORT", help="address of node 0, for Ray")
    parser.add_argument(
        "--ray", default="", metavar="WORDS", help='further words for `ray start` (--ray="--num-cpus=96")'
    )
    parser.add_argument("--limit-s", type=positive_float, default=LIMIT_S, help="for the nodes to find each other")
    parser.add_argument("command", nargs="+", metavar="COMMAND", help="what node 0 runs on the cluster, after --")
    given = parser.parse_args(arguments)
    if given.rank >= given.nodes:
        parser.error(f"--rank {given.rank}: {given.nodes} nodes have the numbers from 0 to {given.nodes - 1}")
    if not given.head.rpartition(":")[0] or not given.head.rpartition(":")[2].isdecimal():
        parser.error(f"--head {given.head}: write HOST:PORT")
    node = Node(given.rank, given.nodes, given.head, shlex.split(given.ray), given.limit_s)
    agree_on_authentication()
    with StopSignals() as signals:
        try:
            return run_head(node, given.command, signals) if node.rank == 0 else run_worker(node, signals)
        except Stopped as stop:
            return stop.exit_code


if __name__ == "__main__":
    sys.exit(main())
