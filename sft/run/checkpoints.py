"""Checkpoints of supervised training: those of RL (`ditto.run.checkpoint`, `ditto.run.export`), by the SFT engine.

    <run>/global_step_50/          config.json, tokenizer, model.safetensors: a model path
    <run>/global_step_50/actor/    verl's own state: shards, optimizer, learning rate

The order of the data needs no state: it follows from the step (`sft.corpus.order`). The number of processes may change.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from omegaconf import DictConfig
from torch.distributed.tensor import DTensor

from ditto.config_checks.resume import named_checkpoint
from ditto.run import checkpoint
from ditto.run.export import export_model
from sft.run.reshard import reshard
from soul.errors import SoulError
from soul.files.disk_space import guarded_writes

RESUME_VARIABLE = "SFT_RESUME_FROM"  # the launcher's choice, for the processes; empty: they begin at step 1


class BadCheckpoint(SoulError):
    """A checkpoint cannot be resumed from."""


class Checkpoints:
    """Saves and loads what an engine holds. Every rank calls both."""

    def __init__(self, engine: Any, config: DictConfig, lora: dict[str, Any] | None) -> None:
        self.engine, self.config, self.lora = engine, config, lora
        self.root = Path(config.trainer.default_local_dir).absolute()
        self.rank = dist.get_rank()

    def save(self, step: int) -> Path:
        """Write beside, complete, flush, rename, then move the tracker.

        Returns:
            The checkpoint's folder.

        Raises:
            OutOfSpace: the earlier checkpoints are whole; what is half written lies in the partial folder.
        """
        needed = self._bytes()
        if self.rank == 0:
            checkpoint.partial_dir(self.root)
        dist.barrier()
        folder = self.root / checkpoint.PARTIAL / f"global_step_{step}"
        with guarded_writes(self.root, lambda: needed):
            self.engine.save_checkpoint(str(folder / "actor"), global_step=step, max_ckpt_to_keep=None)
            if self.rank == 0:
                (folder / "actor" / "ranks.json").write_text(json.dumps(dist.get_world_size()))
                if self.lora is not None:
                    (folder / "actor" / "lora_train_meta.json").write_text(json.dumps(self.lora))
                export_model(folder, str(self.config.model.path))
                checkpoint.publish(self.root, step)
                checkpoint.prune(self.root, self.config.trainer.max_ckpt_to_keep)
        dist.barrier()
        return self.root / f"global_step_{step}"

    def _bytes(self) -> float:
        """About what a checkpoint takes: all ranks' slices of model and optimizer, and the model once more."""
        parameters = sum(_local_bytes(parameter) for parameter in self.engine.module.parameters())
        moments = (value for state in self.engine.optimizer.state.values() for value in state.values())
        total = torch.tensor([2.0 * parameters + sum(_local_bytes(value) for value in moments)], dtype=torch.float64)
        dist.all_reduce(total)
        return float(total)

    def load_checkpoint(self) -> int:
        """Load the checkpoint that the launcher of the first node has chosen.

        Returns:
            Its step; 0 where the run begins.
        """
        chosen: list[str] = [os.environ[RESUME_VARIABLE]]
        dist.broadcast_object_list(chosen, src=0)
        if not chosen[0]:
            return 0
        folder = Path(chosen[0])
        written, ranks = written_by(folder), dist.get_world_size()
        if written == ranks:
            self.engine.load_checkpoint(str(folder / "actor"), del_local_after_load=False)
            return checkpoint.step_of(folder)
        fitting = self.root / checkpoint.PARTIAL / "resharded"
        if self.rank == 0:
            checkpoint.partial_dir(self.root)
            fitting.mkdir()
        dist.barrier()
        with guarded_writes(self.root):
            reshard(folder / "actor", written, fitting, self.rank, ranks, self.engine.module, self.engine.optimizer)
        self.engine.load_checkpoint(str(fitting), del_local_after_load=False)
        dist.barrier()
        if self.rank == 0:
            shutil.rmtree(fitting)
        return checkpoint.step_of(folder)


def _local_bytes(value: Any) -> int:
    """Bytes of this rank's slice of a tensor; 0 for a number."""
    tensor = value.to_local() if isinstance(value, DTensor) else value
    return int(tensor.nbytes) if isinstance(tensor, torch.Tensor) else 0


def choose(config: DictConfig) -> checkpoint.ResumeChoice:
    """Where a run goes on. Changes nothing.

    Raises:
        DamagedCheckpoint: the checkpoint that is named is damaged, or there are some and none is whole.
        BadConfig: there is no checkpoint where one is named, or the run has later ones.
        BadCheckpoint: a run would begin in a folder that holds one; the checkpoint is not of supervised training; or
            another number of processes wrote it, and its slices are not those of FSDP2.
    """
    trainer = config.trainer
    root = Path(trainer.default_local_dir).absolute()
    if trainer.resume_mode == "disable":
        _refuse_existing({Path(config.run.dir).absolute(), root})
        return checkpoint.ResumeChoice(None, {})
    if trainer.resume_mode == "resume_path":
        folder = named_checkpoint(str(trainer.resume_from_path), root)
        written_by(folder)
        choice = checkpoint.ResumeChoice(folder, {})
    else:
        choice = checkpoint.newest_complete(root)
    ranks = trainer.n_gpus_per_node * trainer.nnodes
    if choice.folder and (written := written_by(choice.folder)) != ranks and config.engine.strategy != "fsdp2":
        raise BadCheckpoint(
            f"{choice.folder} was written by {written} processes and there are {ranks}: only engine.strategy=fsdp2 can "
            f"change their number. Resume with {written}, or begin a new run from it: model.path={choice.folder}."
        )
    return choice


def _refuse_existing(folders: Iterable[Path]) -> None:
    for folder in folders:
        present = sorted(path.name for path in folder.glob("[!.]*"))
        if present:
            raise BadCheckpoint(
                f"trainer.resume_mode=disable begins at step 1, and {folder} holds {', '.join(present[:3])}"
                f"{', ...' if len(present) > 3 else ''}. A run never starts over an existing one: set another "
                f"EXPERIMENT_NAME (run.dir), or move {folder} away."
            )


def written_by(folder: Path) -> int:
    """The number of processes that wrote a checkpoint.

    Raises:
        BadCheckpoint: it is not a checkpoint of supervised training.
    """
    file = folder / "actor" / "ranks.json"
    if not file.is_file():
        raise BadCheckpoint(f"{folder} is not a checkpoint of supervised training: it has no actor/{file.name}.")
    return int(json.loads(file.read_text()))
