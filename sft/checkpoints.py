"""Checkpoints of supervised training: those of RL (ditto/checkpoint.py, ditto/export.py), written by the SFT engine.

    <run>/global_step_50/          config.json, tokenizer, model.safetensors: a model path
    <run>/global_step_50/actor/    verl's own state: shards, optimizer, learning rate

The order of the data needs no state: it follows from the step (sft/order.py). The number of processes may change.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import torch.distributed as dist
from omegaconf import DictConfig

from agents.errors import SoulError
from ditto import checkpoint
from ditto.export import export_model
from sft.reshard import reshard


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
        """
        if self.rank == 0:
            checkpoint.partial_dir(self.root)
        dist.barrier()
        folder = self.root / checkpoint.PARTIAL / f"global_step_{step}"
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

    def load_checkpoint(self) -> int:
        """Go on from the run's last checkpoint.

        Returns:
            Its step; 0 where there is none, or none is wanted.

        Raises:
            BadCheckpoint: there is none where one is named.
        """
        ranks = dist.get_world_size()
        step = check_resume(self.config, ranks)
        folder = latest(self.config)
        if folder is None:
            return step
        written = written_by(folder)
        if written == ranks:
            self.engine.load_checkpoint(str(folder / "actor"), del_local_after_load=False)
            return step
        fitting = self.root / checkpoint.PARTIAL / "resharded"
        if self.rank == 0:
            checkpoint.partial_dir(self.root)
            fitting.mkdir()
        dist.barrier()
        reshard(folder / "actor", written, fitting, self.rank, ranks, self.engine.module, self.engine.optimizer)
        self.engine.load_checkpoint(str(fitting), del_local_after_load=False)
        dist.barrier()
        if self.rank == 0:
            shutil.rmtree(fitting)
        return step


def check_resume(config: DictConfig, ranks: int) -> int:
    """The step that a run goes on after; 0 from the beginning.

    Raises:
        BadCheckpoint: there is no checkpoint where one is named, or another number of processes wrote it and its slices
            are not those of FSDP2.
    """
    folder = latest(config)
    if folder is None:
        return 0
    written = written_by(folder)
    if written != ranks and config.engine.strategy != "fsdp2":
        raise BadCheckpoint(
            f"{folder} was written by {written} processes and there are {ranks}: only engine.strategy=fsdp2 can change "
            f"their number. Resume with {written}, or begin a new run from it: model.path={folder}."
        )
    return int(folder.name.removeprefix("global_step_"))


def written_by(folder: Path) -> int:
    """The number of processes that wrote a checkpoint.

    Raises:
        BadCheckpoint: it is none of a supervised training.
    """
    file = folder / "actor" / "ranks.json"
    if not file.is_file():
        raise BadCheckpoint(f"{folder} is no checkpoint of a supervised training: it has no {file.name} under actor/.")
    return int(json.loads(file.read_text()))


def latest(config: DictConfig) -> Path | None:
    """The checkpoint that a run goes on from."""
    trainer = config.trainer
    if trainer.resume_mode == "disable":
        return None
    if trainer.resume_mode == "resume_path":
        return Path(trainer.resume_from_path).absolute()
    root = Path(trainer.default_local_dir).absolute()
    tracker = root / checkpoint.TRACKER
    return root / f"global_step_{tracker.read_text().strip()}" if tracker.is_file() else None
