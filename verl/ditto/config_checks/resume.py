"""Look into the checkpoint that a run would resume from, before engines start.

verl keeps one file a device and part (`actor/model_world_size_8_rank_0.pt`), so a checkpoint is resumed on the number
of devices that saved it. Elsewhere its workers would die of a missing file after minutes of start-up.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

from omegaconf import DictConfig

from ditto.checkpoint import TRACKER
from ditto.settings import BadConfig

_SHARD = re.compile(r"(model|optim|extra_state)_world_size_(\d+)_rank_(\d+)\.pt$")
_FILE_OF = {"model": "model", "optimizer": "optim", "extra": "extra_state"}  # verl's contents -> its file names


def check_resume(config: DictConfig) -> None:
    """Check that the run can resume from what its config points to.

    Raises:
        BadConfig: there is no such checkpoint, it was saved on another number of devices, or lacks a part.
    """
    folder = _checkpoint(config)
    if folder is None:
        return
    trainer, actor = config.trainer, folder / "actor"
    devices = int(trainer.nnodes * trainer.n_gpus_per_node)
    shards = {path.name for path in actor.glob("*.pt") if _SHARD.match(path.name)}
    saved_on = sorted({int(match.group(2)) for name in shards if (match := _SHARD.match(name))})
    if saved_on and devices not in saved_on:
        raise BadConfig(
            f"trainer.resume_mode={trainer.resume_mode}: {folder} was saved on {_join(saved_on)} devices, and this run "
            f"has {devices} (trainer.nnodes={trainer.nnodes} x trainer.n_gpus_per_node={trainer.n_gpus_per_node}). "
            f"verl resumes on the same number only. Train on {_join(saved_on)}, or begin a new run from its weights, "
            f"with a fresh optimizer: ACTOR_MODEL_PATH={folder}, another EXPERIMENT_NAME."
        )
    wanted = [
        f"{_FILE_OF[part]}_world_size_{devices}_rank_{rank}.pt"
        for part in config.actor_rollout_ref.actor.checkpoint.load_contents
        if part in _FILE_OF
        for rank in range(devices)
    ]
    missing = [name for name in wanted if name not in shards]
    if missing:
        raise BadConfig(
            f"trainer.resume_mode={trainer.resume_mode}: {actor} lacks {missing[0]}"
            f"{f' and {len(missing) - 1} more files' if len(missing) > 1 else ''}, which "
            "actor_rollout_ref.actor.checkpoint.load_contents asks for. Resume from another checkpoint "
            "(trainer.resume_mode=resume_path, trainer.resume_from_path), name what it holds in load_contents, or "
            f"begin a new run from its weights: ACTOR_MODEL_PATH={folder}, another EXPERIMENT_NAME."
        )
    _check_lora_rank(actor, int(config.actor_rollout_ref.model.lora_rank))


def _check_lora_rank(actor: Path, rank: int) -> None:
    meta = actor / "lora_train_meta.json"
    saved = int(json.loads(meta.read_text())["r"]) if meta.exists() else 0
    if saved != rank:
        raise BadConfig(
            f"actor_rollout_ref.model.lora_rank={rank}: the checkpoint {actor.parent} was trained with rank {saved} "
            "(0: all weights). Resume with that rank, or begin a new run from its weights: "
            f"ACTOR_MODEL_PATH={actor.parent}, another EXPERIMENT_NAME."
        )


def _checkpoint(config: DictConfig) -> Path | None:
    """The folder that verl will load; None where it trains from the start."""
    trainer = config.trainer
    if trainer.resume_mode == "disable":
        return None
    if trainer.resume_mode == "resume_path":
        folder = Path(trainer.resume_from_path)
        if not re.fullmatch(r"global_step_\d+", folder.name) or not (folder / "actor").is_dir():
            raise BadConfig(
                f"trainer.resume_from_path={folder}: there is no checkpoint. Give a folder global_step_<N> that a run "
                "has left, with the folder actor in it."
            )
        return folder
    tracker = Path(trainer.default_local_dir) / TRACKER
    if not tracker.exists():
        return None
    step = tracker.read_text().strip()
    folder = tracker.parent / f"global_step_{step}"
    if not (folder / "actor").is_dir():
        raise BadConfig(
            f"trainer.resume_mode=auto: {tracker} names step {step}, and {folder} is no checkpoint: verl would begin "
            "again from the first step, in the same folder. Write the step of a checkpoint that is there into that "
            "file, remove it to begin again, or choose another EXPERIMENT_NAME."
        )
    return folder


def _join(numbers: list[int]) -> str:
    return " or ".join(map(str, numbers))
