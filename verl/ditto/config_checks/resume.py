"""Choose the checkpoint that a run resumes from, before engines start, and make verl load exactly that one.

The launcher chooses once, and verl's driver passes the folder to every rank. Training never silently restarts over an
existing run: damaged checkpoints are skipped in favour of the newest complete one, and if none is complete, the run
ends with an error.

A checkpoint has one file per device and part (`actor/model_world_size_8_rank_0.pt`). A run on another number of devices
reads those of all (`ditto.run.reshard`); a missing one would end the workers after minutes of start-up.
"""

from __future__ import annotations

import json
import logging
import re
from pathlib import Path

from omegaconf import DictConfig, open_dict

from ditto.config_checks.resume_changes import check_changes
from ditto.run import checkpoint, manifest
from ditto.run.checkpoint import ResumeChoice
from ditto.run.run_folder import RunFolder
from ditto.settings import BadConfig, chosen_objective
from soul.files.trace_files import FOLDER, trace_files

logger = logging.getLogger(__name__)
_ADAPTER = Path("lora_adapter") / "adapter_config.json"  # below a checkpoint
_FILE_NAMES = {"model": "model", "optimizer": "optim", "extra": "extra_state"}  # verl's part -> start of its file name


def apply_resume(config: DictConfig) -> None:
    """Set the run folder and the config to the checkpoint that the run resumes from.

    Renames damaged newer checkpoints to `global_step_<N>.damaged`, moves metrics and traces of later steps to
    `replaced/`, and sets `trainer.resume_mode` so that verl loads the chosen folder. Call it only while holding the run
    folder's lock. It chooses again, because another run may have written there since the checks.
    """
    choice, trainer = _choose(config), config.trainer
    check_changes(config, choice.folder)
    checkpoint.rename_damaged(_root(config), choice)
    replaced = RunFolder(Path(config.run.dir)).rewind(choice.step if choice.folder else -1)
    if choice.folder is not None:
        logger.info("Resuming from %s", choice.folder)
    elif replaced is not None:
        logger.warning("%s holds no checkpoint: training starts again at step 1", _root(config))
    if replaced is not None:
        logger.info("Moved metrics and traces of later steps to %s", replaced)
    with open_dict(config):
        trainer.resume_mode = "disable" if choice.folder is None else "resume_path"
        trainer.resume_from_path = None if choice.folder is None else str(choice.folder)
    if choice.folder is not None:
        _keep_storage_units(config, choice.folder)


def _keep_storage_units(config: DictConfig, folder: Path) -> None:
    """Give the queue as many storage units as it had when the checkpoint was written; it loads no other number.

    Their number follows that of the GPUs (`platform/gpu.yaml`), which may be another one now.
    """
    units = folder / "transfer_queue" / "simple_storage" / "storage_unit_info.json"  # as TransferQueue names it
    if units.is_file():  # of an asynchronous run
        number = len(json.loads(units.read_text(encoding="utf-8")))
        with open_dict(config):
            config.transfer_queue.backend.SimpleStorage.num_data_storage_units = number
        logger.info("The queue keeps the %d storage units of the checkpoint", number)


def check_resume(config: DictConfig) -> ResumeChoice:
    """Check that the run can start or resume as its config says. Changes nothing.

    Returns:
        The checkpoint that the run resumes from, and the damaged ones that it skips.

    Raises:
        BadConfig: the checkpoint does not exist, or lacks a part; or the run would overwrite another one.
        DamagedCheckpoint: the checkpoint of trainer.resume_from_path is damaged, or all of the run's own are.
    """
    return _choose(config)


def _check_fit(config: DictConfig, folder: Path) -> None:
    """Check that the checkpoint has the files that the run loads, and its LoRA rank."""
    trainer, actor = config.trainer, folder / "actor"
    parts = config.actor_rollout_ref.actor.checkpoint.load_contents
    kinds = [_FILE_NAMES[part] for part in parts if part in _FILE_NAMES]
    written = manifest.writers(actor) or int(trainer.nnodes * trainer.n_gpus_per_node)
    missing = [file.name for kind in kinds for file in manifest.rank_files(actor, kind, written) if not file.is_file()]
    if missing:
        raise BadConfig(
            f"trainer.resume_mode={trainer.resume_mode}: {actor} lacks {missing[0]}"
            f"{f' and {len(missing) - 1} more files' if len(missing) > 1 else ''}, which "
            "actor_rollout_ref.actor.checkpoint.load_contents asks for. Resume from another checkpoint "
            "(trainer.resume_mode=resume_path, trainer.resume_from_path), list only the parts that it has in "
            f"load_contents, or {_new_run(folder)}"
        )
    _check_adapter(folder, config.actor_rollout_ref.model)
    _check_base_teacher(config, actor)
    _check_base(folder, str(config.actor_rollout_ref.model.path))


def _check_base(folder: Path, path: str) -> None:
    """Check that a checkpoint without the base model's weights continues on a base of the same name.

    Only the last part of a path or hub id is compared, because other machines keep the model elsewhere.
    """
    if not _is_adapter_alone(folder):
        return
    saved = str(json.loads((folder / _ADAPTER).read_text(encoding="utf-8"))["base_model_name_or_path"])
    if Path(saved).name != Path(path).name:
        raise BadConfig(
            f"actor_rollout_ref.model.path={path}: {folder} holds an adapter of {saved} without that model's weights. "
            "Resume with the same base model."
        )


def _check_adapter(folder: Path, model: DictConfig) -> None:
    """Check that the adapter has the rank and the alpha with which the checkpoint was trained."""
    file = folder / "actor" / "lora_train_meta.json"
    saved = json.loads(file.read_text()) if file.exists() else {"r": 0}
    for key, name in (("lora_rank", "r"), ("lora_alpha", "lora_alpha")):
        if name in saved and int(saved[name]) != model[key]:
            raise BadConfig(
                f"actor_rollout_ref.model.{key}={model[key]}: the checkpoint {folder} was trained with {key}="
                f"{saved[name]} (rank 0: all weights). Resume with that, or {_new_run(folder)}"
            )


def _new_run(folder: Path) -> str:
    """How to go on from a checkpoint's weights as another run."""
    start = f"weights: ACTOR_MODEL_PATH={folder}"
    if _is_adapter_alone(folder):
        start = f"adapter: actor_rollout_ref.model.lora_adapter_path={(folder / _ADAPTER).parent}"
    return f"start a new run from its {start} and another EXPERIMENT_NAME."


def _is_adapter_alone(folder: Path) -> bool:
    return (folder / _ADAPTER).exists() and not any(folder.glob("*.safetensors"))


def _check_base_teacher(config: DictConfig, actor: Path) -> None:
    """Check that the checkpoint has the weights with which its run began, if they are to teach."""
    algorithm = config.algorithm
    if chosen_objective(algorithm).teacher != "feedback" or algorithm.sdpo.teacher != "base":
        return
    if "teacher" not in {kind for kind, _ in manifest.present_kinds(actor)}:
        raise BadConfig(
            f"algorithm.sdpo.teacher=base: {actor.parent} was written by a run without a teacher of its own, so the "
            "weights that it began with are not known. Resume with algorithm.sdpo.teacher=ema or live."
        )


def _choose(config: DictConfig) -> ResumeChoice:
    if config.trainer.resume_mode == "disable":
        _refuse_used(_root(config), Path(config.run.dir))
    choice = choose_checkpoint(config.trainer, _root(config))
    if choice.folder is not None:
        _check_fit(config, choice.folder)
    return choice


def choose_checkpoint(trainer: DictConfig, root: Path) -> ResumeChoice:
    """The checkpoint that `trainer.resume_mode` and `trainer.resume_from_path` ask for.

    Args:
        root: the folder of the run's own checkpoints.

    Raises:
        BadConfig: there is no such checkpoint, or the run would mix its own checkpoints with later ones.
        DamagedCheckpoint: the named checkpoint is damaged, or all of the run's own are.
    """
    if trainer.resume_mode == "auto":
        return checkpoint.newest_complete(root)
    named = _named_checkpoint(str(trainer.resume_from_path), root) if trainer.resume_mode == "resume_path" else None
    return ResumeChoice(named, {})


def _named_checkpoint(path: str, root: Path) -> Path:
    """The checkpoint of `trainer.resume_from_path`, as an absolute path."""
    folder = Path(path).absolute()
    if not re.fullmatch(r"global_step_\d+", folder.name) or not (folder / "actor").is_dir():
        raise BadConfig(
            f"trainer.resume_from_path={path}: there is no checkpoint. Name a folder global_step_<N> that a run has "
            "written; it contains a folder named actor."
        )
    try:
        manifest.check(folder)
    except manifest.DamagedCheckpoint as error:
        raise manifest.DamagedCheckpoint(
            f"trainer.resume_from_path={folder}: the checkpoint is damaged: {error}. Name another one, or use "
            "trainer.resume_mode=auto, which takes the newest complete checkpoint of the run."
        ) from None
    _refuse_later(root, folder)
    return folder


def _root(config: DictConfig) -> Path:
    return Path(config.trainer.default_local_dir).absolute()


def _refuse_used(root: Path, run_dir: Path) -> None:
    """Raise BadConfig if the folder of a new run already holds another run."""
    traces = [file.path for file in trace_files(run_dir / FOLDER) if not file.live]
    leftovers = [root / checkpoint.TRACKER, run_dir / "metrics.jsonl", *traces]
    leftovers += [*root.glob("global_step_*"), *root.glob(checkpoint.PARTIAL)]
    leftover = next((path for path in leftovers if path.exists()), None)
    if leftover is not None:
        raise BadConfig(
            f"trainer.resume_mode=disable starts a new run, but {root} already holds one ({leftover}). Set another "
            f"EXPERIMENT_NAME, move {root} away, or continue that run with trainer.resume_mode=auto."
        )


def _refuse_later(root: Path, folder: Path) -> None:
    """Raise BadConfig if the run's new checkpoints would get mixed up with later ones in its folder."""
    own = folder.resolve().parent == root.resolve()
    others = [step for step in checkpoint.saved_steps(root) if not own or step > checkpoint.step_of(folder)]
    if others:
        raise BadConfig(
            f"trainer.resume_from_path={folder}: {root} already holds other checkpoints, which would get mixed up with "
            f"the ones of this run (global_step_{others[-1]}). Continue from the newest with trainer.resume_mode=auto, "
            "move them to another folder, or set another EXPERIMENT_NAME."
        )
