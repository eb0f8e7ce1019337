"""The processes of a training run (ranks): torchrun starts them, passes stop signals on to them, and ends them.

torchrun runs inside this process, which holds the lock of the run's folder and reports why a rank failed.
"""

import logging
import os
import shutil
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from omegaconf import DictConfig
from torch.distributed.elastic.multiprocessing.api import SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError, ErrorHandler, ProcessFailure
from torch.distributed.run import parse_args, run

from ditto.run import checkpoint
from ditto.run.run_folder import write_failure
from ditto.run.stop_signals import EXIT_CODES, handled_signals, signal_name
from ditto.settings import BadConfig
from sft.run import stop
from soul.cli import logs
from soul.cli.error_border import FAILED
from soul.cli.redaction import redact
from soul.errors import SoulError

logger = logging.getLogger(__name__)
RESUME_VARIABLE = "SFT_RESUME_FROM"  # tells the ranks which checkpoint the launcher chose; empty: start at step 1
FIRST_NODE_S = 6 * 3600  # the other nodes wait this long until the first one has copied what it resumes from
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
        The exit code: 0; 128 + its number after a stop signal; else that of the first failure, after printing it.
    """
    logging.getLogger("torch.distributed.elastic").setLevel(logging.CRITICAL)  # we report failures ourselves
    root = Path(config.trainer.default_local_dir).absolute()
    os.environ |= {stop.LAUNCHER_VARIABLE: str(os.getpid()), RESUME_VARIABLE: str(resume_from or "")}
    signals = ",".join(number.name for number in handled_signals())
    arguments = [f"--shutdown-timeout={int(config.run.save_on_signal_s)}", f"--signals-to-handle={signals}"]
    logger.info("starting %d processes on this node", config.trainer.n_gpus_per_node)
    try:
        run(parse_args([*arguments, *_topology(config), *program]))
        return 0
    except ChildFailedError as error:
        try:
            code, text = failure_text(list(error.failures.values()), root)
        except RankFailed as defect:
            write_failure(Path(config.run.dir), str(defect))
            raise
        if code not in EXIT_CODES:
            write_failure(Path(config.run.dir), text)
    except SignalException as error:
        code, text = 128 + error.sigval, _stopped(error.sigval, root)
    finally:
        # Only the first node holds the folder's lock: another node may end while this one still saves.
        if node_rank(config) == 0:
            shutil.rmtree(root / checkpoint.PARTIAL, ignore_errors=True)
    print(f"\n{redact(text)}\n", file=sys.stderr)
    return code


def failure_text(failures: Sequence[ProcessFailure], root: Path) -> tuple[int, str]:
    """Exit code and message for the failure that caused the others.

    A rank that loses its connection to a failed one ends with an unexpected exception. When one rank has ended,
    torchrun sends SIGTERM to the others: they stop as if requested, or the signal kills them.
    """
    # The lower the weight, the more likely the exit code belongs to the cause.
    weight = {_DEFECT: 1} | dict.fromkeys(EXIT_CODES, 2) | {-signal.SIGTERM: 3}
    first = min(failures, key=lambda failure: (weight.get(failure.exitcode, 0), failure.timestamp))
    recorded = first.error_file_data.get("message")
    if first.exitcode in EXIT_CODES:
        return first.exitcode, _stopped(first.exitcode - 128, root)
    if not isinstance(recorded, dict):
        ended = f"was ended by {first.signal_name()}" if first.exitcode < 0 else f"ended with code {first.exitcode}"
        hint = ", often because memory ran out: see `dmesg`" if first.exitcode == -signal.SIGKILL else ""
        process = f"The training's process {first.pid} (local rank {first.local_rank})"
        return FAILED, f"{process} {ended}{hint}; its output is above. {checkpoint.resume_hint(root)}"
    if first.exitcode == _DEFECT:
        raise RankFailed(recorded["message"]) from _RemoteTraceback("\n" + recorded["extraInfo"]["py_callstack"])
    return first.exitcode, recorded["message"]


def _stopped(number: int, root: Path) -> str:
    return f"Stopped by {signal_name(number)}. {checkpoint.resume_hint(root)}"


def _topology(config: DictConfig) -> list[str]:
    """torchrun's arguments: a single node, or this node's place among several."""
    devices, nodes = f"--nproc-per-node={config.trainer.n_gpus_per_node}", int(config.trainer.nnodes)
    if nodes == 1:
        return ["--standalone", devices]
    host, port = os.environ["MASTER_ADDR"], os.environ.get("MASTER_PORT") or "29500"
    first_node = [f"--master-addr={host}", f"--master-port={port}", f"--rdzv-conf=timeout={FIRST_NODE_S}"]
    return [devices, f"--nnodes={nodes}", f"--node-rank={node_rank(config)}", *first_node]


def node_rank(config: DictConfig) -> int:
    """This machine's number among the nodes of the training, from 0."""
    nodes = int(config.trainer.nnodes)
    if nodes == 1:  # a batch system may set NODE_RANK for its own purposes
        return 0
    if missing := [name for name in ("NODE_RANK", "MASTER_ADDR") if not os.environ.get(name)]:
        raise BadConfig(
            f"trainer.nnodes={nodes} without {' and '.join(missing)}: run the same command on each node, with its own "
            "number as NODE_RANK (0, 1, ...) and the first node's address as MASTER_ADDR."
        )
    text = os.environ["NODE_RANK"]
    if not text.isdecimal() or int(text) >= nodes:
        raise BadConfig(f"NODE_RANK={text}: with trainer.nnodes={nodes}, use a whole number from 0 to {nodes - 1}.")
    return int(text)
