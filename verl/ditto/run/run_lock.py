"""Who writes to a run's folders: one driver, and one trainer.

The driver's lock refuses a second start at once. The trainer is an actor, perhaps on another node, and outlives a
driver that was killed by seconds; it holds a lock of its own (`.trainer.lock`), so that no new run writes beside it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from omegaconf import DictConfig

from soul.files.folder_lock import HEARTBEAT_S, SILENT_S, FolderLock

TRAINER_FILE = ".trainer.lock"
# Within so many seconds Ray ends the trainer of a killed driver, and one on another machine counts as ended.
ORPHAN_ENDS_S = SILENT_S + HEARTBEAT_S


@contextmanager
def driver_lock(config: DictConfig) -> Iterator[None]:
    """Hold the run's folders for this start. The trainer of a driver that was killed has ended when the block begins.

    Raises:
        FolderInUse: another start holds one of them.
        NotWritable, OutOfSpace: a folder cannot be written to.
    """
    with ExitStack() as held:
        for folder in _folders(config):
            held.enter_context(FolderLock(folder, "training"))
            FolderLock(folder, "training", file=TRAINER_FILE, wait_s=ORPHAN_ENDS_S).close()
        yield


@contextmanager
def trainer_lock(config: DictConfig) -> Iterator[None]:
    """Hold the run's folders for the trainer that writes to them.

    Raises:
        FolderInUse: the trainer of an earlier start still runs.
    """
    with ExitStack() as held:
        for folder in _folders(config):
            held.enter_context(FolderLock(folder, "trainer", file=TRAINER_FILE, wait_s=ORPHAN_ENDS_S))
        yield


def _folders(config: DictConfig) -> list[Path]:
    """The run folder, and the checkpoints' where it is another; in one order, so that two starts cannot deadlock."""
    return sorted({Path(config.run.dir).absolute(), Path(config.trainer.default_local_dir).absolute()})
