"""Copy each checkpoint to an object store or another file system: `trainer.upload_to=s3://bucket/run`.

This is a checkpoint callback of verl's kind (`trainer.checkpoint_callback_class`). `fsspec` knows the store by the
prefix of the address. A checkpoint's `manifest.json` is copied last, so a copy that has one is complete.
"""

from __future__ import annotations

import logging
import time
from pathlib import Path
from typing import Any, ClassVar, Literal

from fsspec.core import url_to_fs
from omegaconf import DictConfig
from verl.trainer.ppo.checkpoint_callback import CheckpointCallback

from ditto.run import manifest
from ditto.run.checkpoint import saved_steps
from ditto.settings import BadConfig
from soul.errors import SoulError, one_line

logger = logging.getLogger(__name__)


class UploadFailed(SoulError):
    """A checkpoint could not be copied."""

    exit_code: ClassVar[Literal[1]] = 1


class UploadCheckpoints(CheckpointCallback):  # type: ignore[misc,unused-ignore]
    """Copies checkpoints to `trainer.upload_to`, and with each one the earlier ones whose copy is not complete."""

    def __init__(self, config: DictConfig) -> None:
        super().__init__(config)
        self.url = str(config.trainer.upload_to)
        try:
            self.store, self.root = url_to_fs(self.url)
        except (ImportError, ValueError, OSError) as error:
            raise BadConfig(
                f"trainer.upload_to={self.url}: {one_line(error, 300)}. Use an address that fsspec knows, such as "
                "s3://bucket/run (package s3fs) or gs://bucket/run (gcsfs), or a folder."
            ) from error

    def on_save(
        self, trainer: Any, global_step: int, checkpoint_dir: str, async_save: bool = False, **kwargs: Any
    ) -> None:
        """Copy the checkpoint, and what is missing of earlier ones.

        Raises:
            UploadFailed: the store did not take a file.
        """
        root = Path(checkpoint_dir).parent
        for step in saved_steps(root):
            folder = root / f"global_step_{step}"
            try:
                self._copy(folder)
            except OSError as error:
                raise UploadFailed(
                    f"{folder} could not be copied to {self.url}: {one_line(error, 300)}. The checkpoint itself is "
                    "whole: the same command continues from it, and copies it first."
                ) from error

    def _copy(self, folder: Path) -> None:
        start, target = time.perf_counter(), f"{self.root}/{folder.name}"
        last = folder / manifest.FILE
        if self.store.exists(f"{target}/{last.name}"):
            if self.store.cat_file(f"{target}/{last.name}") == last.read_bytes():
                return
            self.store.rm(target, recursive=True)  # of an earlier attempt at this step
        files = sorted(path for path in folder.rglob("*") if path.is_file() and path != last)
        for file in [*files, last]:
            copy = f"{target}/{file.relative_to(folder).as_posix()}"
            self.store.makedirs(copy.rpartition("/")[0], exist_ok=True)
            self.store.put_file(str(file), copy)
        seconds = time.perf_counter() - start
        logger.info("copied %s to %s in %.1f s", folder.name, self.url, seconds)
