"""Write a checkpoint while training goes on (`checkpoint.async_save=true`).

torch's stager of asynchronous checkpoints copies the state of every rank to the memory of its machine; training waits
for that copy only. A thread of each rank then writes verl's own files from the copy, so that a checkpoint is the same
file by file, whichever way it was saved. When all ranks have written theirs, rank 0 completes and publishes the
checkpoint; if one of them fails, all learn why.

torch's `async_save` would write a format of its own, and verl's manager waits for all ranks in the process group of the
training, which a second thread must not use.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions
from transformers import AutoModelForCausalLM, GenerationConfig
from verl.utils.transformers_compat import drop_tied_target_keys, get_auto_model_for_vision2seq

from ditto.run.reshard import joined_model

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
        # The copy's memory is kept for the next checkpoint: to allocate pinned memory takes longer than to copy.
        self._stager = DefaultStager(
            StagingOptions(
                use_pinned_memory=torch.cuda.is_available(),
                use_shared_memory=False,
                use_async_staging=False,
                use_non_blocking_copy=torch.accelerator.is_available(),
            )
        )
        self._thread = ThreadPoolExecutor(1)
        self._running: Future[None] | None = None
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
        copy = self._stager.stage(_state(self._manager))
        assert isinstance(copy, dict)  # another type comes with asynchronous staging only
        self._running = self._thread.submit(self._write, folder / "actor", copy, complete, guard)

    def _write(self, actor: Path, state: dict[str, Any], complete: Complete, guard: Guard) -> None:
        """Write the files of this rank; on rank 0, complete the checkpoint after the last rank."""
        manager = self._manager

        def own_files() -> None:
            with guard():
                actor.mkdir(parents=True, exist_ok=True)
                for name, content in state.items():
                    torch.save(content, actor / f"{name}_world_size_{manager.world_size}_rank_{manager.rank}.pt")

        def whole() -> None:
            if manager.rank == 0:
                with guard():
                    model = self._joined(actor)
                complete(model)

        self._together(own_files)
        self._together(whole)

    def _together(self, work: Callable[[], None]) -> None:
        """Do the work of this rank, and wait for the others.

        Raises:
            Exception: what the work of a rank raised, on all of them.
        """
        error: Exception | None = None
        try:
            work()
        except Exception as caught:  # noqa: BLE001 - raised below, on every rank
            error = caught
        errors: list[Exception | None] = [None] * dist.get_world_size(self._group)
        dist.all_gather_object(errors, error, group=self._group)
        first = next((each for each in errors if each is not None), None)
        if first is not None:
            raise error or first

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
        if running is not None:
            running.result()

    def close(self) -> None:
        """Wait for the last checkpoint, and release the memory of the copies.

        Raises:
            Exception: as `check`.
        """
        self.wait()
        self._thread.shutdown()
        self._stager.close()
        self._about.cleanup()


def _state(manager: Any) -> dict[str, Any]:
    """The state that verl's manager saves of this rank: name of the file -> its content, not copied."""
    model = manager.model.state_dict()
    if manager.should_save_lora_only:
        model = {name: value for name, value in model.items() if "lora_" in name or ".adapter_" in name}
    scheduler = manager.lr_scheduler
    extra = {"lr_scheduler": None if scheduler is None else scheduler.state_dict(), "rng": manager.get_rng_state()}
    return {"model": model, "optim": manager.optimizer.state_dict(), "extra_state": extra}


class HfModelWriter:
    """Writes a model in Hugging Face format as verl's manager does, from tensors in memory.

    transformers builds an empty model for that. It changes torch's default dtype meanwhile, for all threads, so it is
    built once, before training starts.
    """

    def __init__(self, manager: Any) -> None:
        self._config = manager.model.config
        conditional = "ForConditionalGeneration" in self._config.architectures[0]
        kind = get_auto_model_for_vision2seq() if conditional else AutoModelForCausalLM
        with torch.device("meta"):
            trust = manager.trust_remote_code
            self._empty = kind.from_config(self._config, torch_dtype=torch.bfloat16, trust_remote_code=trust)

    def write(self, folder: Path, tensors: dict[str, torch.Tensor]) -> None:
        """Write the weights into a folder that has the config, and perhaps a generation config."""
        if (folder / "generation_config.json").is_file():
            self._empty.generation_config = GenerationConfig.from_pretrained(folder)
        kept = dict(tensors)
        drop_tied_target_keys(kept, self._empty, self._config)
        self._empty.save_pretrained(folder, state_dict=kept)
