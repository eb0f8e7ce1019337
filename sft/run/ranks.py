"""Start the processes of a training (ranks) with torchrun's launcher, inside this process, and end them with it.

This process is the parent of the ranks of its node. It holds the lock of the run's folder, receives SIGTERM and Ctrl-C,
and reports why a rank failed. If it is killed, the kernel kills the ranks.
"""

from __future__ import annotations

import logging
import os
import shutil
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType, TracebackType

from omegaconf import DictConfig
from torch.distributed.elastic.multiprocessing.api import SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError, ErrorHandler, ProcessFailure
from torch.distributed.run import parse_args, run

from ditto.run import checkpoint
from ditto.run.stop_signals import handled_signals, signal_name
from ditto.settings import BadConfig
from sft.run import stop
from soul.cli import logs
from soul.cli.error_border import FAILED, INTERRUPTED, TERMINATED
from soul.cli.redaction import redact
from soul.errors import SoulError

logger = logging.getLogger(__name__)
RESUME_VARIABLE = "SFT_RESUME_FROM"  # tells the ranks which checkpoint the launcher chose; empty: start at step 1
FIRST_NODE_S = 6 * 3600.0  # the other nodes wait this long until the first one has what it resumes from
_POLL_S, _CONNECT_S = 0.5, 5.0
_DEFECT = os.EX_SOFTWARE  # exit code of a rank that ends with an unexpected exception


class RankFailed(Exception):
    """A rank ended with an unexpected exception; `__cause__` holds its traceback."""


class _RemoteTraceback(Exception):
    """The traceback of another process, as text."""


def rank_main(train: Callable[[], int]) -> int:
    """Run the training in a rank and return its exit code; if it fails, record the error for the launcher."""
    stop.die_with_parent(int(os.environ[stop.LAUNCHER_VARIABLE]))
    stop.listen()
    logs.set_up()
    try:
        return train()
    except Exception as error:  # noqa: BLE001 - the border of this process: the launcher reports the error
        ErrorHandler().record_exception(error)
        sys.stdout.flush()
        sys.stderr.flush()
        # Without any clean-up: during it, the other ranks would lose their connection to this one and fail first.
        os._exit(error.exit_code if isinstance(error, SoulError) else _DEFECT)


def run_ranks(config: DictConfig, program: Sequence[str], resume_from: Path | None) -> int:
    """Start this node's ranks and wait until they end.

    Args:
        program: the program that a rank runs, with its arguments.
        resume_from: the checkpoint that all ranks load; None: they start at step 1.

    Returns:
        The exit code: 0; 143 or 130 after SIGTERM or Ctrl-C; else that of the first failure, after printing it.

    Raises:
        BadConfig: the first node does not appear.
        RankFailed: a rank ended with an unexpected exception.
    """
    logging.getLogger("torch.distributed.elastic").setLevel(logging.CRITICAL)  # we report failures ourselves
    root = Path(config.trainer.default_local_dir).absolute()
    with tempfile.TemporaryDirectory(prefix="soul-sft-") as folder:
        file = Path(folder) / "stop"
        logger.info("starting %d processes on this node", config.trainer.n_gpus_per_node)
        os.environ |= {stop.LAUNCHER_VARIABLE: str(os.getpid()), stop.FILE_VARIABLE: str(file)}
        os.environ[RESUME_VARIABLE] = str(resume_from or "")
        with _Signals(file, float(config.run.save_on_signal_s)) as signals:
            try:
                _await_first_node(config, signals)
                run(parse_args(["--signals-to-handle=SIGQUIT", *_topology(config), *program]))
                return 0
            except ChildFailedError as error:
                code, text = failure_text(list(error.failures.values()), signals.received, root)
            except SignalException:
                code, text = 128 + signals.received, _dropped(signals.received, root)
            finally:
                # Only the first node holds the folder's lock: another node may end while this one still saves.
                if node_rank(config) == 0:
                    shutil.rmtree(root / checkpoint.PARTIAL, ignore_errors=True)
    print(f"\n{redact(text)}\n", file=sys.stderr)
    return code


class _Signals:
    """While the ranks run, the first SIGTERM or Ctrl-C asks them to stop; a second one or the deadline kills them."""

    def __init__(self, file: Path, save_s: float) -> None:
        self.received = 0
        self._file, self._save_s = file, save_s

    def __enter__(self) -> _Signals:
        numbers = (*handled_signals(), signal.SIGALRM)
        self._before = {number: signal.signal(number, self._on) for number in numbers}
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _on(self, number: int, _frame: FrameType | None) -> None:
        again = self.received != 0
        self.received = self.received or number
        if again or self._save_s <= 0:
            # torchrun's launcher sends the signal of this exception to the ranks, and waits until they end.
            raise SignalException("the ranks are killed", signal.SIGKILL)
        stop.request(self._file, number)
        signal.setitimer(signal.ITIMER_REAL, self._save_s)
        text = f"{signal_name(number)}: finishing and saving the step, for at most {self._save_s:.0f} s; "
        os.write(2, f"\n{text}a second signal ends the run at once.\n".encode())  # print is not safe in a handler


def failure_text(failures: Sequence[ProcessFailure], received: int, root: Path) -> tuple[int, str]:
    """Exit code and message for the failure that caused the others.

    A rank that loses its connection to a failed one ends with an unexpected exception. When one rank has ended,
    torchrun's launcher sends SIGTERM to the others: they stop as if requested, or the signal kills them.
    """
    # The lower the weight, the more likely the exit code belongs to the cause.
    weight = {_DEFECT: 1, TERMINATED: 2, INTERRUPTED: 2, -signal.SIGTERM: 3}
    first = min(failures, key=lambda failure: (weight.get(failure.exitcode, 0), failure.timestamp))
    recorded = first.error_file_data.get("message")
    if first.exitcode in (TERMINATED, INTERRUPTED):
        return first.exitcode, f"Stopped by {signal_name(first.exitcode - 128)}. {checkpoint.resume_hint(root)}"
    if received and (not isinstance(recorded, dict) or first.exitcode == _DEFECT):
        return 128 + received, _dropped(received, root)  # the whole process group got the signal
    if not isinstance(recorded, dict):
        return FAILED, f"{_ended(first)} {checkpoint.resume_hint(root)}"
    if first.exitcode == _DEFECT:
        raise RankFailed(recorded["message"]) from _RemoteTraceback("\n" + recorded["extraInfo"]["py_callstack"])
    return first.exitcode, recorded["message"]


def _ended(failure: ProcessFailure) -> str:
    process = f"The training's process {failure.pid} (local rank {failure.local_rank})"
    if failure.exitcode == -signal.SIGKILL:
        return f"{process} was killed (SIGKILL), often because memory ran out: see `dmesg`."
    if failure.exitcode < 0:
        return f"{process} was ended by {failure.signal_name()}."
    return f"{process} ended with exit code {failure.exitcode}; its output is above."


def _dropped(received: int, root: Path) -> str:
    return f"Ended by {signal_name(received)} without saving the current step. {checkpoint.resume_hint(root)}"


def _topology(config: DictConfig) -> list[str]:
    """torchrun's arguments: a single node, or this node's place among several."""
    devices = f"--nproc-per-node={config.trainer.n_gpus_per_node}"
    if config.trainer.nnodes == 1:
        return ["--standalone", devices]
    host, port = _master()
    return [
        devices,
        f"--nnodes={config.trainer.nnodes}",
        f"--node-rank={node_rank(config)}",
        f"--master-addr={host}",
        f"--master-port={port}",
    ]


def _master() -> tuple[str, int]:
    """The address at which the first node's launcher listens.

    Raises:
        BadConfig: MASTER_PORT is no port.
    """
    port = os.environ.get("MASTER_PORT") or "29500"
    if not port.isdecimal() or not 0 < int(port) < 65536:
        raise BadConfig(f"MASTER_PORT={port}: use a port, a whole number from 1 to 65535.")
    return os.environ.get("MASTER_ADDR") or "127.0.0.1", int(port)


def _await_first_node(config: DictConfig, signals: _Signals) -> None:
    """Wait until the first node's launcher listens: it may still copy a checkpoint from the store.

    torchrun's launcher would wait too, but for 15 minutes at most, and without hearing signals.

    Raises:
        BadConfig: it does not listen for FIRST_NODE_S.
        SignalException: a signal asks for the end.
    """
    if node_rank(config) == 0:
        return
    host, port = _master()
    deadline, told = time.monotonic() + FIRST_NODE_S, False
    while not _listens(host, port):
        if signals.received:
            raise SignalException("nothing has started", signal.SIGKILL)
        if time.monotonic() > deadline:
            raise BadConfig(
                f"The first node (NODE_RANK=0) has not listened at {host}:{port} for {FIRST_NODE_S / 3600:g} hours. "
                "Start it, see in its output why it has ended, or correct MASTER_ADDR and MASTER_PORT."
            )
        if not told:
            logger.info("waiting for the first node (NODE_RANK=0) at %s:%d, which chooses the checkpoint", host, port)
            told = True
        time.sleep(_POLL_S)


def _listens(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), timeout=_CONNECT_S).close()
    except OSError:
        return False
    return True


def node_rank(config: DictConfig) -> int:
    """This machine's number among the nodes of the training, from 0.

    Raises:
        BadConfig: NODE_RANK is not such a number.
    """
    nodes = int(config.trainer.nnodes)
    if nodes == 1:  # a batch system may set NODE_RANK for its own purposes
        return 0
    text = os.environ.get("NODE_RANK") or "0"
    if not text.isdecimal() or int(text) >= nodes:
        raise BadConfig(f"NODE_RANK={text}: with trainer.nnodes={nodes}, use a whole number from 0 to {nodes - 1}.")
    return int(text)
