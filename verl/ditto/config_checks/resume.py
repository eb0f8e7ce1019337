"""Choose the checkpoint that a run resumes from, before engines start, and make verl load exactly that one.

The launcher chooses once, and verl's driver passes the folder to every rank. Training never silently restarts over an
existing run: damaged checkpoints are skipped in favour of the newest complete one, and if none is complete, the run
ends with an error.

A checkpoint has one file per device and part (`actor/model_world_size_8_rank_0.pt`). A run on another number of devices
reads those of all (`ditto.run.reshard`); a missing one would end the workers after minutes of start-up.

A start that resumes is compared with the last one, which `run.json` describes:

    refused     what the checkpoint's weights belong to: the model, the adapter, the kind of optimizer
    accepted    the objective, and what decides which rows a step trains, with `trainer.resume_changed=true`
    applied     optimizer settings: they hold from the next step on (`ditto/model/engine.py`)
    shown       everything else
"""

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, open_dict

from ditto.config_checks.key_types import covering, leaves
from ditto.config_checks.keys import OUTSIDE, RL_KEYS
from ditto.objectives import objective
from ditto.policies import ADAPTERS
from ditto.run import checkpoint, manifest, run_json
from ditto.run.checkpoint import ResumeChoice
from ditto.run.run_folder import RunFolder
from ditto.settings import BadConfig
from ditto.verl_hooks.worker_config import resolve
from soul.files.trace_files import FOLDER, trace_files

logger = logging.getLogger(__name__)
_ADAPTER = Path("lora_adapter") / "adapter_config.json"  # below a checkpoint
_PARTS = ("model", "optim", "extra_state")  # beginnings of the names of verl's files

SHOWN = 6  # differences in a line, at most
_MODEL, _OPTIMIZER = "actor_rollout_ref.model", "actor_rollout_ref.actor.optim"
_ADAPTER_KEYS = tuple(f"{_MODEL}.{name}" for name in ("target_modules", "exclude_modules", "lora_adapter_path"))
_KEPT = (f"{_MODEL}.path", ADAPTERS, *_ADAPTER_KEYS, f"{_OPTIMIZER}.optimizer", f"{_OPTIMIZER}.optimizer_impl")
_LENGTH = "trainer.total_training_steps"
_TOLD = (*_KEPT, "algorithm.objective")
_PLACES = (f"{_MODEL}.path", f"{_MODEL}.lora_adapter_path")  # other machines keep them elsewhere: names are compared
_ORDER = (
    *("data.train_batch_size", "data.seed", "data.shuffle", "data.train_max_samples", "data.max_prompt_length"),
    *("data.filter_overlong_prompts", "data.mixture", "policies", "self_play"),
)
_FILES = ("data.train_files", "data.val_files")  # their contents are compared, or nothing depends on them
_OF_A_START = ("run.dir", "trainer.default_local_dir", "trainer.resume_", "dry_run", *_FILES)


def apply_resume(config: DictConfig) -> None:
    """Set the run folder and the config to the checkpoint that the run resumes from.

    Renames damaged newer checkpoints to `global_step_<N>.damaged`, moves metrics and traces of later steps to
    `replaced/`, and sets `trainer.resume_mode` so that verl loads the chosen folder. Call it only while holding the run
    folder's lock. It chooses again, because another run may have written there since the checks.
    """
    choice, trainer, root = check_resume(config), config.trainer, _root(config)
    check_changes(config, choice.folder)
    checkpoint.rename_damaged(root, choice)
    replaced = RunFolder(Path(config.run.dir)).rewind(choice.step if choice.folder else -1)
    if choice.folder is not None:
        logger.info("Resuming from %s", choice.folder)
    elif replaced is not None:
        logger.warning("%s holds no checkpoint: training starts again at step 1", root)
    if replaced is not None:
        logger.info("Moved metrics and traces of later steps to %s", replaced)
    with open_dict(config):
        trainer.resume_mode = "disable" if choice.folder is None else "resume_path"
        trainer.resume_from_path = None if choice.folder is None else str(choice.folder)
        # The queue loads no other number of storage units than it had; their number follows that of the GPUs.
        units = (choice.folder or root) / "transfer_queue" / "simple_storage" / "storage_unit_info.json"
        if choice.folder is not None and units.is_file():  # of an asynchronous run
            number = len(json.loads(units.read_text(encoding="utf-8")))
            config.transfer_queue.backend.SimpleStorage.num_data_storage_units = number


def check_resume(config: DictConfig) -> ResumeChoice:
    """Check that the run can start or resume as its config says, and choose its checkpoint. Changes nothing."""
    root = _root(config)
    if config.trainer.resume_mode == "disable":
        _refuse_used(root, Path(config.run.dir))
    choice = choose_checkpoint(config.trainer, root)
    if choice.folder is not None:
        _check_fit(config, choice.folder)
    return choice


def choose_checkpoint(trainer: DictConfig, root: Path) -> ResumeChoice:
    """The checkpoint that `trainer.resume_mode` and `trainer.resume_from_path` ask for; `root` has the run's own.

    Raises:
        BadConfig: there is no such checkpoint, or the run would mix its own checkpoints with later ones.
        DamagedCheckpoint: the named checkpoint is damaged, or all of the run's own are.
    """
    if trainer.resume_mode == "auto":
        return checkpoint.newest_complete(root)
    if trainer.resume_mode == "disable":
        return ResumeChoice(None, {})
    folder = Path(str(trainer.resume_from_path)).absolute()
    if not checkpoint.STEP.fullmatch(folder.name) or not (folder / "actor").is_dir():
        raise BadConfig(
            f"trainer.resume_from_path={trainer.resume_from_path}: there is no checkpoint. Name a folder "
            "global_step_<N> that a run has written; it contains a folder named actor."
        )
    try:
        manifest.check(folder)
    except manifest.DamagedCheckpoint as error:
        raise manifest.DamagedCheckpoint(
            f"trainer.resume_from_path={folder}: the checkpoint is damaged: {error}. Name another one, or use "
            "trainer.resume_mode=auto, which takes the newest complete checkpoint of the run."
        ) from None
    own = folder.resolve().parent == root.resolve()
    if others := [step for step in checkpoint.saved_steps(root) if not own or step > checkpoint.step_of(folder)]:
        raise BadConfig(
            f"trainer.resume_from_path={folder}: {root} already holds other checkpoints, which would get mixed up with "
            f"the ones of this run (global_step_{others[-1]}). Continue from the newest with trainer.resume_mode=auto, "
            "move them to another folder, or set another EXPERIMENT_NAME."
        )
    return ResumeChoice(folder, {})


def _check_fit(config: DictConfig, folder: Path) -> None:
    """Check that the checkpoint has the files that the run loads, its adapter, its base model and its teacher."""
    actor, model, algorithm = folder / "actor", config.actor_rollout_ref.model, config.algorithm
    written = manifest.writers(actor) or int(config.trainer.nnodes * config.trainer.n_gpus_per_node)
    missing = [file.name for part in _PARTS for file in manifest.rank_files(actor, part, written) if not file.is_file()]
    alone = (folder / _ADAPTER).exists() and not any(folder.glob("*.safetensors"))  # without the model's weights
    start = f"adapter: actor_rollout_ref.model.lora_adapter_path={(folder / _ADAPTER).parent}"
    new_run = f"start a new run from its {start if alone else f'weights: ACTOR_MODEL_PATH={folder}'} and another "
    new_run += "EXPERIMENT_NAME."
    if missing:
        raise BadConfig(
            f"trainer.resume_mode={config.trainer.resume_mode}: {actor} lacks {missing[0]}"
            f"{f' and {len(missing) - 1} more files' if len(missing) > 1 else ''}. Resume from another checkpoint "
            f"(trainer.resume_mode=resume_path, trainer.resume_from_path), or {new_run}"
        )
    meta = actor / "lora_train_meta.json"
    saved = json.loads(meta.read_text()) if meta.exists() else {"r": 0}
    for key, name in (("lora_rank", "r"), ("lora_alpha", "lora_alpha")):
        if name in saved and int(saved[name]) != model[key]:
            raise BadConfig(
                f"actor_rollout_ref.model.{key}={model[key]}: the checkpoint {folder} was trained with {key}="
                f"{saved[name]} (rank 0: all weights). Resume with that, or {new_run}"
            )
    if objective(algorithm.objective).teacher == "feedback" and algorithm.sdpo.teacher == "base":
        if "teacher" not in {kind for kind, _ in manifest.present_kinds(actor)}:
            raise BadConfig(
                f"algorithm.sdpo.teacher=base: {folder} was written by a run without a teacher of its own, so the "
                "weights that it began with are not known. Resume with algorithm.sdpo.teacher=ema or live."
            )
    if alone:  # the names are compared, because other machines keep the model elsewhere
        base = str(json.loads((folder / _ADAPTER).read_text(encoding="utf-8"))["base_model_name_or_path"])
        if Path(base).name != Path(str(model.path)).name:
            raise BadConfig(
                f"actor_rollout_ref.model.path={model.path}: {folder} holds an adapter of {base} without that model's "
                "weights. Resume with the same base model."
            )


def _root(config: DictConfig) -> Path:
    return Path(config.trainer.default_local_dir).absolute()


def _refuse_used(root: Path, run_dir: Path) -> None:
    """Raise BadConfig if the folder of a new run already holds another run."""
    traces = [file.path for file in trace_files(run_dir / FOLDER) if not file.live]
    leftovers = [root / checkpoint.TRACKER, run_dir / "metrics.jsonl", *traces]
    leftovers += [*root.glob("global_step_*"), *root.glob(checkpoint.PARTIAL)]
    if leftover := next((path for path in leftovers if path.exists()), None):
        raise BadConfig(
            f"trainer.resume_mode=disable starts a new run, but {root} already holds one ({leftover}). Set another "
            f"EXPERIMENT_NAME, move {root} away, or continue that run with trainer.resume_mode=auto."
        )


def check_changes(config: DictConfig, folder: Path | None) -> list[str]:
    """Compare a config with that of the checkpoint's run.

    Args:
        config: composed, and not yet resolved for the workers.
        folder: the checkpoint that the run resumes from; None: there is none.

    Returns:
        Lines for the plan: where the run resumes, and the differences.
    """
    if folder is None:
        return []
    lines = [f"after {folder}"]
    before = run_json.earlier(folder.parent / run_json.FILE) or run_json.earlier(Path(config.run.dir) / run_json.FILE)
    if not before:
        logger.warning("%s has no %s beside it: the run's settings are not compared", folder, run_json.FILE)
        return lines
    settled = config.copy()
    resolve(settled)
    now = run_json.described(settled)
    changes = dict(_changes(before["config"], now["config"]))
    held = set(_KEPT) if config.actor_rollout_ref.model.lora_rank else set(_KEPT).difference(_ADAPTER_KEYS)
    kept = [text for key, text in changes.items() if key in held]
    if kept:
        raise BadConfig(
            f"{folder} was trained with other settings: {_listed(kept)}. Its weights and its optimizer belong to "
            "those, so a resumed run cannot change them. Undo the change, or start a new run from its weights with "
            "another EXPERIMENT_NAME."
        )
    order = [text for key, text in changes.items() if f"{key}.".startswith(tuple(f"{each}." for each in _ORDER))]
    order += _changed_files(before["data_cards"], now["data_cards"])
    name = objective(config.algorithm.objective).name
    if before["objective"] != name:
        order.insert(0, f"algorithm.objective was {before['objective']} and is {name}")
    if order and not config.trainer.resume_changed:
        raise BadConfig(
            f"{folder} was trained with another objective or on other rows: {_listed(order)}. Its position belongs to "
            "the order of its rows, so with others a resumed run would repeat some and never see others. Undo the "
            "change, or go on with it with trainer.resume_changed=true."
        )
    at_once = [key for key in changes if key.startswith(f"{_OPTIMIZER}.")]
    if config.actor_rollout_ref.actor.optim.lr_scheduler_type != "constant" and _LENGTH in changes:
        changes[_LENGTH] += ", so the learning rate jumps to the schedule of that length"
        at_once.insert(0, _LENGTH)
    applied = [changes[key] for key in at_once]
    other = [text for key, text in changes.items() if text not in (*order, *applied) and key not in _TOLD]
    lines += [f"CHANGED (trainer.resume_changed=true): {_listed(order)}"] if order else []
    lines += [f"from the next step on: {_listed(applied)}"] if applied else []
    return lines + ([f"other than before: {_listed(other)}"] if other else [])


def _changes(before: dict[str, Any], now: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Key and description of each difference between two configs."""
    old, new = dict(leaves(before)), dict(leaves(now))
    for key in {**old, **new}:
        read = (
            key.startswith("gateway.") or key == ADAPTERS or covering(key, RL_KEYS)
        )  # the gateway: the resolved sections of the roles
        if not read or key.startswith((*_OF_A_START, *OUTSIDE)):
            continue
        values = [json.dumps(values.get(key), ensure_ascii=False) for values in (old, new)]
        if key in _PLACES and len({Path(value.strip('"')).name for value in values}) == 1:
            continue
        if values[0] != values[1]:
            yield key, f"{key} was {values[0]} and is {values[1]}"


def _changed_files(before: list[dict[str, Any]], now: list[dict[str, Any]]) -> Iterator[str]:
    """The difference between the training files, by their contents: a file may have moved."""
    old, new = ([card for card in cards if card["split"] == "train"] for cards in (before, now))
    if [_identity(card) for card in old] != [_identity(card) for card in new]:
        names = [", ".join(f"{card['name']} ({card['rows']:,} rows)" for card in cards) for cards in (old, new)]
        yield f"data.train_files were {names[0]} and are {names[1]}" + (" of other contents" * (names[0] == names[1]))


def _identity(card: dict[str, Any]) -> Any:
    return card["sha256"] or (card["name"], card["bytes"])


def _listed(changes: list[str]) -> str:
    more = f"; and {len(changes) - SHOWN} more" if len(changes) > SHOWN else ""
    return "; ".join(changes[:SHOWN]) + more
