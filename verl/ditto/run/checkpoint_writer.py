"""Write a run's checkpoints in a temporary folder, and publish each one after its step's metrics are written.

verl saves in the middle of a step, before the weight sync, the validation and the step's metrics. So the checkpoint
waits in the partial folder until the metrics are written. A published step therefore always has its metrics, and a run
that is killed in between repeats the step.
"""

import logging
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from omegaconf import DictConfig, open_dict

from ditto.run import checkpoint, manifest
from ditto.run.export import export_model, export_saved_adapter
from soul.files import disk_writes

logger = logging.getLogger(__name__)


class CheckpointWriter:
    """Writes and publishes the checkpoints of one run.

    Args:
        config: the run's config; verl's save function reads the target folder from it.
        phase: opens a block that the watchdog watches as a phase of the run.

    Attributes:
        written_step: the last step with a complete checkpoint, published or not; None before the first one.
        seconds: how long writing it took.
    """

    def __init__(self, config: DictConfig, phase: Callable[[str], AbstractContextManager[None]]) -> None:
        self.config, self.phase = config, phase
        self.root = Path(config.trainer.default_local_dir).absolute()
        self.written_step: int | None = None
        self.seconds = 0.0
        self._published_step: int | None = None

    def write(self, step: int, save: Callable[[], None]) -> None:
        """Write a complete checkpoint into the partial folder.

        Args:
            save: verl's save function, which writes to trainer.default_local_dir.
        """
        start = time.perf_counter()
        ref = self.config.actor_rollout_ref
        with self.phase("checkpoint"), reserve_space(self.root):
            with self._target(checkpoint.partial_dir(self.root)):
                save()
            folder = self.root / checkpoint.PARTIAL / f"global_step_{step}"
            manifest.require_ranks(folder)  # before the export, which may read them
            export = export_saved_adapter if ref.actor.checkpoint.save_lora_only else export_model
            export(folder, str(ref.model.path))
        self.written_step, self.seconds = step, time.perf_counter() - start
        logger.info("Wrote the checkpoint of step %d (%.1f s)", step, self.seconds)

    def publish(self) -> None:
        """Publish the waiting checkpoint, if any, and remove the oldest ones beyond trainer.max_actor_ckpt_to_keep."""
        if self.written_step is None or self.written_step == self._published_step:
            return
        start = time.perf_counter()
        with self.phase("checkpoint"):
            folder = checkpoint.publish(self.root, self.written_step)
            self._published_step = self.written_step
            checkpoint.prune(self.root, self.config.trainer.max_actor_ckpt_to_keep)
        gigabytes, seconds = checkpoint.size_of(folder) / 1e9, time.perf_counter() - start
        logger.info("Checkpoint %s is published (%.2f GB, %.1f s)", folder, gigabytes, seconds)

    @contextmanager
    def _target(self, folder: Path) -> Iterator[None]:
        """A block in which verl saves to this folder."""
        trainer = self.config.trainer
        final, keep = trainer.default_local_dir, trainer.max_actor_ckpt_to_keep
        with open_dict(self.config):
            # We prune as well, so verl must not: it would look for older checkpoints in the partial folder.
            trainer.default_local_dir, trainer.max_actor_ckpt_to_keep = str(folder), None
            try:
                yield
            finally:
                trainer.default_local_dir, trainer.max_actor_ckpt_to_keep = final, keep


@contextmanager
def reserve_space(root: Path) -> Iterator[None]:
    """A block that writes a checkpoint. If it fails, nothing of the checkpoint is left behind.

    Raises:
        OutOfSpace: before the block if less is free than the last checkpoint took, or in place of the error that a full
            disk raised in it.
    """
    steps = checkpoint.saved_steps(root)
    needed = checkpoint.size_of(root / f"global_step_{steps[-1]}") if steps else 0
    root.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(root / checkpoint.PARTIAL, ignore_errors=True)
    disk_writes.require(root, needed)
    try:
        with disk_writes.guarded_writes(root, (lambda: needed) if needed else None):
            yield
    except BaseException:
        shutil.rmtree(root / checkpoint.PARTIAL, ignore_errors=True)
        raise
