"""Checkpoints of supervised training, in the format of RL's (`ditto.run.checkpoint`, `ditto.run.export`).

    <run>/global_step_50/          config.json, tokenizer, model.safetensors: a model path; or lora_adapter/ alone
    <run>/global_step_50/actor/    verl's own state: shards, optimizer, learning rate

The order of the data needs no state: the step determines it (`sft.corpus.order`). A run may resume with another number
of processes (`ditto.model.engine`).
"""

from __future__ import annotations

import json
import logging
import os
import socket
import time
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import torch
import torch.distributed as dist
from omegaconf import DictConfig
from torch.distributed.tensor import DTensor

from ditto.config_checks.resume import choose_checkpoint
from ditto.run import checkpoint
from ditto.run.finite_steps import require_finite_weights
from ditto.run.store import Uploads
from sft.run.ranks import RESUME_VARIABLE
from sft.run.sft_card import write_sft_card
from sft.run.trained_data import TrainedData
from soul.errors import SoulError
from soul.files.disk_space import guarded_writes

if TYPE_CHECKING:
    from sft.run.background_save import BackgroundSaves

logger = logging.getLogger(__name__)

# Called with the step of a checkpoint that is in place.
Published = Callable[[int], None]


class BadCheckpoint(SoulError):
    """A run cannot resume from a checkpoint."""


class Checkpoints:
    """Saves and loads the state of an engine. Every rank must call both."""

    def __init__(self, engine: Any, config: DictConfig, lora: dict[str, Any] | None, data: TrainedData) -> None:
        self.engine, self.config, self.lora, self.data = engine, config, lora, data
        self.root = Path(config.trainer.default_local_dir).absolute()
        self.rank = dist.get_rank()
        if config.trainer.nnodes > 1:
            check_shared(self.root)
        self.uploads = Uploads.from_config(config) if self.rank == 0 else None
        self._background: BackgroundSaves | None = None
        if config.checkpoint.async_save:
            # Here and below, not at the top: the launcher chooses a checkpoint with this module, and needs no verl.
            from sft.run.background_save import BackgroundSaves

            self._background = BackgroundSaves(engine.checkpoint_manager)

    def save(self, step: int, published: Published) -> None:
        """Write a checkpoint to the partial folder, rename it into place, then update the tracker file.

        With `checkpoint.async_save`, this returns when the state is copied, and the rest happens beside the training.

        Args:
            published: called on rank 0 when the checkpoint is in place; with `async_save`, by another thread. Without
                it, the other ranks do not wait for rank 0.

        Raises:
            NotFinite: the weights of a rank are NaN or infinite. Nothing is written.
            OutOfSpace: the disk is full. Earlier checkpoints stay whole; the partial folder holds what was written.
            Exception: an earlier checkpoint could not be written beside the training.
        """
        from ditto.model.teacher_weights import TrainedShards

        self.wait()  # the partial folder has room for one checkpoint
        finite = torch.tensor(int(TrainedShards(self.engine.module).are_finite()))
        dist.all_reduce(finite, op=dist.ReduceOp.MIN)
        require_finite_weights(step, bool(finite), self.root)
        start, needed = time.perf_counter(), self._bytes()
        if self.rank == 0:
            checkpoint.partial_dir(self.root)
        dist.barrier()  # the folder is there
        folder = self.root / checkpoint.PARTIAL / f"global_step_{step}"

        def guard() -> AbstractContextManager[None]:
            return guarded_writes(self.root, lambda: needed)

        def complete(adapter: dict[str, torch.Tensor] | None) -> None:
            with guard():
                self._complete(folder, adapter)
            logger.info("saved step %d in %.1f s: %s", step, time.perf_counter() - start, self.root / folder.name)
            published(step)

        if self._background is not None:
            self._background.start(folder, lambda model: complete(self._adapter_of(model)), guard)
            return
        adapter = self._adapter()
        with guard():
            self.engine.save_checkpoint(str(folder / "actor"), global_step=step, max_ckpt_to_keep=None)
        if self.rank == 0:
            complete(adapter)

    def _complete(self, folder: Path, adapter: dict[str, torch.Tensor] | None) -> None:
        """Add what verl does not write, and publish: on rank 0, when the files of all ranks are there."""
        from ditto.run.export import export_adapter, export_model

        (folder / "actor" / "ranks.json").write_text(json.dumps(dist.get_world_size()))
        self.data.write(folder)
        if self.lora is not None:
            (folder / "actor" / "lora_train_meta.json").write_text(json.dumps(self.lora))
        if adapter is not None and self.lora is not None:
            export_adapter(folder, adapter, self.lora, str(self.config.model.path))
        else:
            export_model(folder, str(self.config.model.path))
        trainer, step = self.config.trainer, checkpoint.step_of(folder)
        write_sft_card(folder, self.config, self.data, step)
        checkpoint.publish(self.root, step)
        most = trainer.max_ckpt_gb
        in_use = self.uploads.reading() if self.uploads else frozenset()
        checkpoint.prune(self.root, trainer.max_ckpt_to_keep, None if most is None else most * 1e9, in_use)

    def check(self) -> None:
        """Raise why a checkpoint could not be written beside the training, as soon as that is known; do not wait."""
        if self._background is not None:
            self._background.check()

    def wait(self) -> None:
        """Wait until the last checkpoint is published. Raises why it could not be written."""
        if self._background is not None:
            self._background.wait()

    def close(self) -> None:
        """As `wait`, after the last checkpoint of the run."""
        if self._background is not None:
            self._background.close()

    def _adapter(self) -> dict[str, torch.Tensor] | None:
        """LoRA's factors, joined from all ranks; None if the checkpoint holds the whole model."""
        from verl.utils.device import get_device_id

        factors = self._adapter_of(self.engine.module.state_dict()) or {}
        device = get_device_id()  # slices may be offloaded, and are joined on the device
        joined = {
            name: (value.to(device).full_tensor() if isinstance(value, DTensor) else value).cpu()
            for name, value in factors.items()
        }
        return joined or None

    def _adapter_of(self, model: dict[str, torch.Tensor]) -> dict[str, torch.Tensor] | None:
        """LoRA's factors among a model's tensors; None if the checkpoint holds the whole model."""
        if not self.config.checkpoint.save_lora_only:
            return None
        return {name: value for name, value in model.items() if ".lora_" in name}

    def _bytes(self) -> float:
        """About how many bytes a checkpoint takes: all ranks' slices of model and optimizer, and the exported model."""
        alone = self.config.checkpoint.save_lora_only
        saved = (each for each in self.engine.module.parameters() if each.requires_grad or not alone)
        parameters = sum(_local_bytes(parameter) for parameter in saved)
        moments = (value for state in self.engine.optimizer.state.values() for value in state.values())
        total = torch.tensor([2.0 * parameters + sum(_local_bytes(value) for value in moments)], dtype=torch.float64)
        dist.all_reduce(total)
        return float(total)

    def load_checkpoint(self) -> int:
        """Load the checkpoint that the launcher of the first node has chosen.

        Returns:
            Its step; 0 if the run starts from the beginning.
        """
        chosen: list[str] = [os.environ[RESUME_VARIABLE]]
        dist.broadcast_object_list(chosen, src=0)
        if not chosen[0]:
            return 0
        folder = Path(chosen[0])
        written, ranks = writer_count(folder), dist.get_world_size()
        if self.rank == 0:
            resharding = "" if written == ranks else f", converting it from {written} processes to {ranks}"
            logger.info("resuming from %s%s", folder, resharding)
        self.engine.load_checkpoint(str(folder / "actor"), del_local_after_load=False)
        return checkpoint.step_of(folder)


def check_shared(root: Path) -> None:
    """Check that all ranks see the folder of checkpoints. Every rank must call it.

    Raises:
        BadCheckpoint: names the machines that do not.
    """
    name = [uuid4().hex]
    dist.broadcast_object_list(name, src=0)
    mark, leads = root / f".seen-{name[0]}", dist.get_rank() == 0
    if leads:
        root.mkdir(parents=True, exist_ok=True)
        mark.touch()
    dist.barrier()
    blind: list[str | None] = [None] * dist.get_world_size()
    dist.all_gather_object(blind, None if mark.exists() else socket.gethostname())
    if leads:
        mark.unlink()
    if any(blind):
        raise BadCheckpoint(
            f"trainer.default_local_dir={root}: {', '.join(sorted({host for host in blind if host}))} cannot see the "
            "folder of the first node, so the checkpoints would lack what is trained there. Put OUTPUT_DIR on a disk "
            "that all nodes share."
        )


def _local_bytes(value: Any) -> int:
    """Bytes of this rank's slice of a tensor; 0 for a number."""
    tensor = value.to_local() if isinstance(value, DTensor) else value
    return int(tensor.nbytes) if isinstance(tensor, torch.Tensor) else 0


def choose(config: DictConfig) -> checkpoint.ResumeChoice:
    """Choose the checkpoint to resume from. Changes nothing on disk.

    Raises:
        DamagedCheckpoint: the named checkpoint is damaged, or there are checkpoints and all are damaged.
        BadConfig: the named checkpoint does not exist, or the run has later ones.
        BadCheckpoint: a new run would start in the folder of an existing one, or the checkpoint is not one of
            supervised training.
    """
    trainer = config.trainer
    root = Path(trainer.default_local_dir).absolute()
    if trainer.resume_mode == "disable":
        _refuse_existing({Path(config.run.dir).absolute(), root})
    choice = choose_checkpoint(trainer, root)
    if choice.folder:
        writer_count(choice.folder)  # raises if it is not a checkpoint of supervised training
    return choice


def _refuse_existing(folders: Iterable[Path]) -> None:
    for folder in folders:
        present = sorted(path.name for path in folder.glob("[!.]*"))
        if present:
            raise BadCheckpoint(
                f"trainer.resume_mode=disable starts at step 1, but {folder} holds {', '.join(present[:3])}"
                f"{', ...' if len(present) > 3 else ''}. A run never overwrites an existing one: set another "
                f"EXPERIMENT_NAME (run.dir), or move {folder} away."
            )


def writer_count(folder: Path) -> int:
    """The number of processes that wrote a checkpoint.

    Raises:
        BadCheckpoint: it is not a checkpoint of supervised training.
    """
    file = folder / "actor" / "ranks.json"
    if not file.is_file():
        raise BadCheckpoint(f"{folder} is not a checkpoint of supervised training: it has no actor/{file.name}.")
    return int(json.loads(file.read_text()))
