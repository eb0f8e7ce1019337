"""Write a checkpoint while training goes on (`checkpoint.async_save=true`), with torch's distributed checkpointing.

`torch.distributed.checkpoint.async_save` copies the state of every rank to the memory of its machine; training waits
for that copy only. A thread of each rank then writes verl's own files from the copy, so that a checkpoint is the same
file by file, whichever way it was saved. When all ranks have written theirs, rank 0 completes and publishes the
checkpoint; if one of them fails, all learn why.

verl's manager has no part in the writing: it waits for all ranks in the process group of the training, which a second
thread must not use. Its own `checkpoint.async_save` is for Megatron only.
"""

from __future__ import annotations

import logging
import shutil
import tempfile
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import AbstractContextManager
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import checkpoint as dcp
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.metadata import Metadata, StorageMeta
from torch.distributed.checkpoint.planner import SavePlan, SavePlanner, WriteItem
from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions
from torch.distributed.checkpoint.storage import StorageWriter, WriteResult

from ditto.run.reshard import joined_model
from sft.run.hf_model_writer import HfModelWriter

logger = logging.getLogger(__name__)
PATIENCE = timedelta(days=1)  # ranks wait this long for the slowest one to write, or for rank 0 to copy a checkpoint

# Completes and publishes a checkpoint, on rank 0. Gets the model's tensors as they were saved, whole.
Complete = Callable[[dict[str, torch.Tensor]], None]
# A block in which files are written.
Guard = Callable[[], AbstractContextManager[None]]


class BackgroundSaves:
    """Writes one checkpoint at a time. Every rank must call every method."""

    def __init__(self, manager: Any) -> None:
        """Prepare everything that must not be done beside the training.

        Args:
            manager: verl's checkpoint manager of an FSDP2 engine.
        """
        self._manager = manager
        self._group = dist.new_group(backend="gloo", timeout=PATIENCE)
        accelerated = torch.accelerator.is_available()
        # The copy's memory is kept for the next checkpoint: to allocate pinned memory takes longer than to copy.
        self._stager = DefaultStager(
            StagingOptions(
                use_pinned_memory=torch.cuda.is_available(),
                use_shared_memory=False,
                use_async_staging=False,
                use_non_blocking_copy=accelerated,
            )
        )
        self._running: Future[Metadata] | None = None
        self._about = tempfile.TemporaryDirectory(prefix="soul-sft-about-")
        self._write_about(Path(self._about.name))
        self._hf_model = HfModelWriter(manager) if manager.should_save_hf_model and manager.rank == 0 else None

    def _write_about(self, folder: Path) -> None:
        """Let verl write the small files of a checkpoint: config, tokenizer. They are the same at every step."""
        contents = self._manager.checkpoint_save_contents
        self._manager.checkpoint_save_contents = []
        try:
            self._manager.save_checkpoint(str(folder))
        finally:
            self._manager.checkpoint_save_contents = contents

    def start(self, folder: Path, complete: Complete, guard: Guard) -> None:
        """Copy the state, and begin to write it to `<folder>/actor`. Waits until an earlier checkpoint is written.

        Args:
            folder: the checkpoint's folder, not yet published.

        Raises:
            Exception: the earlier one could not be written.
        """
        self.wait()

        def finish() -> None:
            with guard():
                model = self._joined(folder / "actor")
            complete(model)

        writer = _RankFiles(folder / "actor", self._manager, guard, finish)
        response = dcp.async_save(
            _state(self._manager),
            storage_writer=writer,
            planner=_OwnFiles(),
            process_group=self._group,
            async_stager=self._stager,
        )
        assert isinstance(response, Future)  # another type comes with asynchronous staging only
        self._running = response

    def _joined(self, actor: Path) -> dict[str, torch.Tensor]:
        """Add the small files and the model in Hugging Face format. Returns the model's tensors."""
        shutil.copytree(self._about.name, actor, dirs_exist_ok=True)
        model = joined_model(actor, self._manager.world_size)
        if self._hf_model is not None:
            self._hf_model.write(actor / "huggingface", model)
        return model

    def check(self) -> None:
        """Raise what ended the writing of a checkpoint, if that has happened; do not wait.

        Raises:
            Exception: the cause, as it was raised on the rank where it happened.
        """
        if self._running is not None and self._running.done():
            self.wait()

    def wait(self) -> None:
        """Wait until the checkpoint is published.

        Raises:
            Exception: as `check`.
        """
        running, self._running = self._running, None
        try:
            if running is not None:
                running.result()
        except CheckpointException as error:  # no Exception, and it hides its cause
            causes = [cause for cause, _ in error.failures.values()]
            raise causes[0] from error

    def close(self) -> None:
        """Wait for the last checkpoint, and release the memory of the copies.

        Raises:
            Exception: as `check`.
        """
        self.wait()
        self._stager.close()
        self._about.cleanup()


def _state(manager: Any) -> dict[str, Any]:
    """What verl's manager saves of this rank: name of the file -> its content, not copied."""
    model = manager.model.state_dict()
    if manager.should_save_lora_only:
        model = {name: value for name, value in model.items() if "lora_" in name or ".adapter_" in name}
    scheduler = manager.lr_scheduler
    extra = {"lr_scheduler": None if scheduler is None else scheduler.state_dict(), "rng": manager.get_rng_state()}
    return {"model": model, "optim": manager.optimizer.state_dict(), "extra_state": extra}


class _OwnFiles(SavePlanner):
    """A plan without distribution: every rank writes what it has."""

    def set_up_planner(
        self, state_dict: dict[str, Any], storage_meta: StorageMeta | None = None, is_coordinator: bool = False
    ) -> None:
        self.state = state_dict

    def create_local_plan(self) -> SavePlan:
        return SavePlan([])

    def create_global_plan(self, all_plans: list[SavePlan]) -> tuple[list[SavePlan], Metadata]:
        return all_plans, Metadata({})

    def finish_plan(self, new_plan: SavePlan) -> SavePlan:
        return new_plan

    def resolve_data(self, write_item: WriteItem) -> torch.Tensor:
        raise NotImplementedError("the plan has no items")


class _RankFiles(StorageWriter):
    """Writes verl's files of this rank; on rank 0, completes the checkpoint after the last rank."""

    def __init__(self, actor: Path, manager: Any, guard: Guard, finish: Callable[[], None]) -> None:
        self._actor, self._guard, self._finish = actor, guard, finish
        self._suffix = f"world_size_{manager.world_size}_rank_{manager.rank}.pt"

    def reset(self, checkpoint_id: object = None) -> None: ...

    def set_up_storage_writer(self, is_coordinator: bool, *args: Any, **kwargs: Any) -> None: ...

    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        return plan

    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        return plans

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> torch.futures.Future[list[WriteResult]]:
        assert isinstance(planner, _OwnFiles)
        with self._guard():
            self._actor.mkdir(parents=True, exist_ok=True)
            for name, content in planner.state.items():
                torch.save(content, self._actor / f"{name}_{self._suffix}")
        done: torch.futures.Future[list[WriteResult]] = torch.futures.Future()
        done.set_result([])
        return done

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        self._finish()

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: object) -> bool:
        return True
