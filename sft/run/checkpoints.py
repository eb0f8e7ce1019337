"""Checkpoints of supervised training, in the format of RL's (`ditto.run.checkpoint`, `ditto.run.export`).

    <run>/global_step_50/          config.json, tokenizer, model.safetensors: a model path; or lora_adapter/ alone
    <run>/global_step_50/actor/    verl's own state: shards, optimizer, learning rate

The order of the data needs no state: the step determines it (`sft.corpus.order`). A run may resume with another number
of processes (`ditto.model.engine`).
"""

import json
import logging
import os
import socket
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from omegaconf import DictConfig

from ditto.config_checks.resume import choose_checkpoint
from ditto.run import checkpoint
from ditto.run.finite_steps import require_finite_weights
from sft.run.ranks import RESUME_VARIABLE
from sft.run.trained_data import TrainedData
from soul.errors import SoulError
from soul.files.disk_writes import guarded_writes

logger = logging.getLogger(__name__)


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

    def save(self, step: int) -> None:
        """Write a checkpoint to the partial folder, rename it into place, then update the tracker file.

        Rank 0 returns when the checkpoint is in place; the other ranks do not wait for it.
        """
        # Here and below, not at the top: the launcher chooses a checkpoint with this module, and needs no verl.
        from ditto.model.teacher_weights import TrainedShards

        finite = torch.tensor(int(TrainedShards(self.engine.module).are_finite()))
        dist.all_reduce(finite, op=dist.ReduceOp.MIN)
        require_finite_weights(step, bool(finite), self.root)
        start = time.perf_counter()
        if self.rank == 0:
            checkpoint.partial_dir(self.root)
        dist.barrier()  # the folder is there
        folder = self.root / checkpoint.PARTIAL / f"global_step_{step}"
        with guarded_writes(self.root):
            self.engine.save_checkpoint(str(folder / "actor"), global_step=step, max_ckpt_to_keep=None)
            if self.rank == 0:
                self._complete(folder, step)
        if self.rank == 0:
            logger.info("saved step %d in %.1f s: %s", step, time.perf_counter() - start, self.root / folder.name)

    def _complete(self, folder: Path, step: int) -> None:
        """Add what verl does not write, and publish: on rank 0, when the files of all ranks are there."""
        from ditto.run.export import export_model, export_saved_adapter

        (folder / "actor" / "ranks.json").write_text(json.dumps(dist.get_world_size()))
        self.data.write(folder)
        if self.lora is not None:
            (folder / "actor" / "lora_train_meta.json").write_text(json.dumps(self.lora))
        export = export_saved_adapter if self.config.checkpoint.save_lora_only else export_model
        export(folder, str(self.config.model.path))
        checkpoint.publish(self.root, step)
        checkpoint.prune(self.root, self.config.trainer.max_ckpt_to_keep)

    def load_checkpoint(self) -> int:
        """Load the checkpoint that the launcher of the first node has chosen. Returns its step; 0: there is none."""
        chosen: list[str] = [os.environ[RESUME_VARIABLE]]
        dist.broadcast_object_list(chosen, src=0)
        if not chosen[0]:
            return 0
        folder = Path(chosen[0])
        if self.rank == 0:
            logger.info("resuming from %s, written by %d processes", folder, writer_count(folder))
        self.engine.load_checkpoint(str(folder / "actor"), del_local_after_load=False)
        return checkpoint.step_of(folder)


def check_shared(root: Path) -> None:
    """Check that all ranks see the folder of checkpoints. Every rank must call it."""
    mark = root / ".seen"
    if dist.get_rank() == 0:
        root.mkdir(parents=True, exist_ok=True)
        mark.write_text(name := str(time.time_ns()))
    else:
        name = ""
    names = [name]
    dist.broadcast_object_list(names, src=0)
    seen = mark.is_file() and mark.read_text() == names[0]
    blind: list[str | None] = [None] * dist.get_world_size()
    dist.all_gather_object(blind, None if seen else socket.gethostname())
    if dist.get_rank() == 0:
        mark.unlink()
    if any(blind):
        raise BadCheckpoint(
            f"trainer.default_local_dir={root}: {', '.join(sorted({host for host in blind if host}))} cannot see the "
            "folder of the first node, so the checkpoints would lack what is trained there. Put OUTPUT_DIR on a disk "
            "that all nodes share."
        )


def choose(config: DictConfig) -> checkpoint.ResumeChoice:
    """Choose the checkpoint to resume from. Changes nothing on disk."""
    root = Path(config.trainer.default_local_dir).absolute()
    for folder in {Path(config.run.dir).absolute(), root} if config.trainer.resume_mode == "disable" else ():
        if present := sorted(path.name for path in folder.glob("[!.]*")):
            raise BadCheckpoint(
                f"trainer.resume_mode=disable starts at step 1, but {folder} holds {', '.join(present[:3])}. A run "
                f"never overwrites an existing one: set another EXPERIMENT_NAME (run.dir), or move {folder} away."
            )
    choice = choose_checkpoint(config.trainer, root)
    if choice.folder:
        writer_count(choice.folder)  # raises if it is not a checkpoint of supervised training
    return choice


def writer_count(folder: Path) -> int:
    """The number of processes that wrote a checkpoint."""
    file = folder / "actor" / "ranks.json"
    if not file.is_file():
        raise BadCheckpoint(f"{folder} is not a checkpoint of supervised training: it has no actor/{file.name}.")
    return int(json.loads(file.read_text()))
