"""Decide which checkpoint a run resumes from, before engines start, and make verl load exactly that one.

The launcher decides once, and verl's driver passes the folder to every rank. Training never starts over an
existing run: damaged checkpoints are left aside for the newest whole one, and where none is whole the run ends.

verl keeps one file a device and part (`actor/model_world_size_8_rank_0.pt`), so a checkpoint is resumed on the number
of devices that saved it. Elsewhere its workers would die of a missing file after minutes of start-up.
"""

from __future__ import annotations

import json
import logging
import re
from pathlib import Path

from omegaconf import DictConfig, open_dict

from ditto.run import checkpoint, manifest
from ditto.run.checkpoint import Choice
from ditto.run.run_folder import RunFolder
from ditto.settings import BadConfig

logger = logging.getLogger(__name__)
_SHARD = re.compile(r"(model|optim|extra_state)_world_size_(\d+)_rank_(\d+)\.pt$")
_FILE_OF = {"model": "model", "optimizer": "optim", "extra": "extra_state"}  # verl's contents -> its file names


def settle_resume(config: DictConfig) -> None:
    """Bring the run folder and the config to the checkpoint that the run resumes from.

    Damaged newer checkpoints are renamed to `global_step_<N>.damaged`, metrics and traces of later steps move to
    `replaced/`, and `trainer.resume_mode` becomes what makes verl load the chosen folder. Call it only while holding
    the run folder's lock: it decides anew, because another run may have written there since the checks.

    Raises:
        SoulError: as `check_resume`; or metrics.jsonl cannot be read.
    """
    choice, trainer = check_resume(config), config.trainer
    checkpoint.set_aside(_root(config), choice)
    replaced = RunFolder(Path(config.run.dir)).rewind(choice.step if choice.folder else -1)
    if choice.folder is not None:
        logger.info("Resuming from %s", choice.folder)
    elif replaced is not None:
        logger.warning("%s holds no checkpoint: training begins with step 1 again", _root(config))
    if replaced is not None:
        logger.info("Metrics and traces of later steps are moved to %s", replaced)
    with open_dict(config):
        trainer.resume_mode = "disable" if choice.folder is None else "resume_path"
        trainer.resume_from_path = None if choice.folder is None else str(choice.folder)


def check_resume(config: DictConfig) -> Choice:
    """Check that the run can begin or resume as its config says. Changes nothing.

    Returns:
        The checkpoint that the run resumes from, and those left aside.

    Raises:
        BadConfig: there is no such checkpoint, it was saved on another number of devices, or lacks a part; or the run
            would write over another one.
        DamagedCheckpoint: the checkpoint of trainer.resume_from_path is not whole, or none of the run's own is.
    """
    choice = _choose(config)
    if choice.folder is not None:
        _check_fit(config, choice.folder)
    return choice


def _check_fit(config: DictConfig, folder: Path) -> None:
    """Whether the run's devices, parts and adapter are those of the checkpoint."""
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


def _choose(config: DictConfig) -> Choice:
    trainer, root = config.trainer, _root(config)
    if trainer.resume_mode == "auto":
        return checkpoint.newest_whole(root)
    if trainer.resume_mode == "disable":
        _refuse_used(root, Path(config.run.dir))
        return Choice(None, {})
    return Choice(named_checkpoint(trainer.resume_from_path, root), {})


def named_checkpoint(path: str, root: Path) -> Path:
    """The checkpoint of `trainer.resume_from_path`, absolute.

    Args:
        root: the folder of the run's own checkpoints.

    Raises:
        BadConfig: there is no checkpoint, or the run would mix its own with later ones.
        DamagedCheckpoint: it is not whole.
    """
    folder = Path(path).absolute()
    if not re.fullmatch(r"global_step_\d+", folder.name) or not (folder / "actor").is_dir():
        raise BadConfig(
            f"trainer.resume_from_path={path}: there is no checkpoint. Give a folder "
            "global_step_<N> that a run has left, with the folder actor in it."
        )
    try:
        manifest.check(folder)
    except manifest.DamagedCheckpoint as error:
        raise manifest.DamagedCheckpoint(
            f"trainer.resume_from_path={folder}: the checkpoint is damaged: {error}. Name another one, or use "
            "trainer.resume_mode=auto, which takes the newest whole checkpoint of the run."
        ) from None
    _refuse_later(root, folder)
    return folder


def _root(config: DictConfig) -> Path:
    return Path(config.trainer.default_local_dir).absolute()


def _refuse_used(root: Path, run_dir: Path) -> None:
    """A run that begins anew needs a folder without another run in it."""
    marks = [root / checkpoint.TRACKER, run_dir / "metrics.jsonl", run_dir / "traces"]
    marks += [*root.glob("global_step_*"), *root.glob(checkpoint.PARTIAL)]
    mark = next((path for path in marks if path.exists()), None)
    if mark is not None:
        raise BadConfig(
            f"trainer.resume_mode=disable begins a new run, and {root} holds one already ({mark}). Set another "
            f"EXPERIMENT_NAME, move {root} away, or go on with that run: trainer.resume_mode=auto."
        )


def _refuse_later(root: Path, folder: Path) -> None:
    """A run that goes back to an older checkpoint must not mix its checkpoints with the later ones."""
    own = folder.resolve().parent == root.resolve()
    others = [step for step in checkpoint.saved_steps(root) if not own or step > checkpoint.step_of(folder)]
    if others:
        raise BadConfig(
            f"trainer.resume_from_path={folder}: {root} holds checkpoints that the run would mix with its own "
            f"(global_step_{others[-1]}). Go on from the newest with trainer.resume_mode=auto, move them to another "
            "folder, or set another EXPERIMENT_NAME."
        )


def _join(numbers: list[int]) -> str:
    return " or ".join(map(str, numbers))
