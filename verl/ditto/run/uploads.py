"""Copy what a run leaves to its store, beside the training: `trainer.upload_to`.

A thread copies metrics and traces and then the checkpoints that the store lacks, the newest first. The training never
waits for it, and the watchdog does not watch it. What an upload could not do is logged, counted, and tried again with
the next checkpoint and at the end of the run.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from omegaconf import DictConfig

from ditto.run import checkpoint, manifest
from ditto.run.store import RUN_ID, LooksLikeKey, RunStore, StoreFailed
from soul.errors import SoulError, one_line

logger = logging.getLogger(__name__)

LAST_TRIES_S = (0.0, 10.0, 60.0)  # waits before the tries at the end of a run


class UploadFailed(StoreFailed):
    """A run has ended, and the store lacks its newest checkpoint or its metrics."""


class Uploads:
    """The uploads of one run, by one process.

    Args:
        store: whose manifest is that of this run (`store_resume.py`).
        run_dir: the folder with metrics and traces.
        root: the folder with the checkpoints.
    """

    def __init__(self, store: RunStore, run_dir: Path, root: Path) -> None:
        self.store, self.run_dir, self.root = store, run_dir, root
        self.failures = 0
        self.copied_step = 0
        self._withheld: set[str] = set()
        self._reading: frozenset[int] = frozenset()
        self._alone = threading.Lock()

    @classmethod
    def from_config(cls, config: DictConfig) -> Uploads | None:
        """The uploads that `trainer.upload_to` asks for; None without it."""
        trainer = config.trainer
        if trainer.upload_to is None:
            return None
        root = Path(trainer.default_local_dir).absolute()
        return cls(RunStore(str(trainer.upload_to)), Path(config.run.dir).absolute(), root)

    def start(self) -> None:
        """Copy what the store lacks, beside whatever goes on. Returns at once."""
        threading.Thread(target=self._copy, name="uploads", daemon=True).start()

    def reading(self) -> frozenset[int]:
        """The steps of the checkpoints that are being read, which must stay where they are."""
        return self._reading

    def metrics(self) -> dict[str, float]:
        """The last step whose checkpoint is in the store, and how many uploads failed."""
        return {"ditto/upload_step": self.copied_step, "ditto/upload_failures": self.failures}

    def finish(self, wait: Callable[[float], None] = time.sleep) -> UploadFailed | None:
        """Copy what is left, however long it takes, and log how the uploads went.

        Returns:
            Why the store lacks something at the end; None if it lacks nothing.
        """
        failure: StoreFailed | None = None
        for seconds in LAST_TRIES_S:
            wait(seconds)
            failure = self._copy()
            if failure is None or isinstance(failure, LooksLikeKey):
                break
        if self._withheld:
            logger.warning("Not uploaded, because they look like keys: %s", ", ".join(sorted(self._withheld)))
        if failure is None:
            again = f" ({self.failures} uploads had failed before)" if self.failures else ""
            logger.info("%s holds the run up to step %d%s", self.store.url, self.copied_step, again)
            return None
        return UploadFailed(
            f"{failure} {self.failures} uploads of this run failed, and the store's newest checkpoint is "
            f"{f'that of step {self.copied_step}' if self.copied_step else 'none of this process'}. The run's own "
            f"checkpoints in {self.root} are whole. The same command uploads what is missing."
        )

    def _copy(self) -> StoreFailed | None:
        """Copy everything that the store lacks, up to a failure of the store.

        Returns:
            That failure, which another try may overcome; else the first checkpoint that is withheld because of a key.
        """
        withheld: StoreFailed | None = None
        with self._alone:  # one copy after the other, however many checkpoints are published meanwhile
            steps = reversed(checkpoint.saved_steps(self.root))
            copies: list[Callable[[], None]] = [self._copy_run_files]
            copies += [partial(self._copy_checkpoint, step) for step in steps]
            for copy in copies:
                try:
                    copy()
                except (SoulError, OSError) as error:
                    failure = error if isinstance(error, StoreFailed) else StoreFailed(f"{one_line(error)}.")
                    self.failures += 1
                    logger.error("UPLOAD FAILED: %s: %s", type(failure).__name__, failure)
                    if not isinstance(failure, LooksLikeKey):
                        return failure
                    withheld = withheld or failure
        return withheld

    def _copy_run_files(self) -> None:
        known, run = self.store.manifest(), (self.root / RUN_ID).read_text(encoding="utf-8")
        if known is None or known.run != run:
            raise StoreFailed(f"{self.store.url} {'holds another run' if known else f'has lost its {manifest.FILE}'}.")
        left_out = self.store.put_run_files(self.run_dir)
        for name in sorted(set(left_out) - self._withheld):
            self.failures += 1
            logger.error("UPLOAD FAILED: %s holds or is named like a key, and is left out", self.run_dir / name)
        self._withheld |= set(left_out)

    def _copy_checkpoint(self, step: int) -> None:
        self._reading = frozenset({step})
        start = time.perf_counter()
        try:
            folder = self.root / f"global_step_{step}"
            if not (folder / manifest.FILE).exists():  # pruned since, or of a release without manifests
                return
            if self.store.put_checkpoint(folder):
                seconds = time.perf_counter() - start
                logger.info("%s has all of the checkpoint of step %d (%.1f s)", self.store.url, step, seconds)
            self.copied_step = max(self.copied_step, step)
        finally:
            self._reading = frozenset()
