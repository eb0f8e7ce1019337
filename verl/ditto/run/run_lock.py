"""Locks on a run's folders: at most one driver and one trainer may use them.

The driver's lock refuses a second start at once. The trainer is an actor, perhaps on another node, and survives a
killed driver by some seconds. It holds its own lock (`.trainer.lock`), so that no new run writes at the same time.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from omegaconf import DictConfig

from soul.files.folder_lock import HEARTBEAT_S, SILENT_S, FolderLock

TRAINER_FILE = ".trainer.lock"
# Seconds within which Ray ends the trainer of a killed driver, and within which the lock of another machine expires.
ORPHAN_ENDS_S = SILENT_S + HEARTBEAT_S


@contextmanager
def driver_lock(config: DictConfig) -> Iterator[None]:
    """Lock the run's folders for this driver. First waits until the trainer of a killed driver has ended.

    Raises:
        FolderInUse: another driver or trainer holds one of the locks.
        NotWritable, OutOfSpace: a folder cannot be written to.
    """
    with ExitStack() as held:
        for folder in _folders(config):
            held.enter_context(FolderLock(folder, "training"))
            FolderLock(folder, "training", file=TRAINER_FILE, wait_s=ORPHAN_ENDS_S).close()
        yield


@contextmanager
def trainer_lock(config: DictConfig) -> Iterator[None]:
    """Lock the run's folders for the trainer, which writes to them.

    Raises:
        FolderInUse: the trainer of an earlier start is still running.
    """
    with ExitStack() as held:
        for folder in _folders(config):
            held.enter_context(FolderLock(folder, "trainer", file=TRAINER_FILE, wait_s=ORPHAN_ENDS_S))
        yield


def _folders(config: DictConfig) -> list[Path]:
    """The run folder and, if it differs, the checkpoint folder. Sorted, so that two drivers cannot deadlock."""
    return sorted({Path(config.run.dir).absolute(), Path(config.trainer.default_local_dir).absolute()})
