"""Find and check the checkpoints that teach (`algorithm.distill.teachers`), before anything starts."""

import os
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from ditto.model.exactness import check_head, check_packing
from ditto.model.model_folder import check_weights, load_chat
from ditto.objectives.options import EVERY_OTHER
from ditto.settings import BadConfig, Settings
from soul.evaluate.run.checkpoint import BadCheckpoint, Checkpoint

KEY = "algorithm.distill.teachers"


def resolve_teachers(teachers: Mapping[str, str]) -> dict[str, str]:
    """The folder or hub id of each teacher. A run folder stands for its latest checkpoint.

    Raises:
        BadConfig: a path holds no model, or only a LoRA adapter.
    """
    found = {}
    for task, path in teachers.items():
        try:
            checkpoint = Checkpoint.find(path)
        except BadCheckpoint as error:
            raise BadConfig(f"{KEY}.{task}={path}: {error}") from error
        if checkpoint.adapter is not None:
            raise BadConfig(f"{KEY}.{task}={path}: this is a LoRA adapter. Name the global_step_N folder above it.")
        local = Path(checkpoint.model).exists()
        found[task] = os.path.abspath(checkpoint.model) if local else checkpoint.model
    return found


def check_teachers(config: DictConfig, settings: Settings, tasks: Collection[str], tokenizer: Any) -> dict[str, str]:
    """Check that every task of the rows has a teacher, and that each teacher can score what the student samples.

    Args:
        tasks: of the training rows.
        tokenizer: the student's.

    Returns:
        Task -> folder or hub id of its teacher; {} where no checkpoint teaches.

    Raises:
        BadConfig: a task or a teacher without the other, or a checkpoint that does not fit the student.
        BadModel: a checkpoint is damaged.
    """
    if not settings.expert_teachers:
        return {}
    teachers = settings.options.distill.teachers
    without = sorted(set(tasks) - set(teachers))
    if without and EVERY_OTHER not in teachers:
        raise BadConfig(
            f"{KEY}={dict(teachers)}: no teacher for the training rows' tasks {', '.join(without)}. Name one for each, "
            f"or one for all others: +{KEY}.{EVERY_OTHER}=CHECKPOINT."
        )
    unused = sorted(set(teachers) - set(tasks) - ({EVERY_OTHER} if without else set()))
    if unused:
        raise BadConfig(
            f"{KEY} names a teacher for {', '.join(unused)}, but the training rows' tasks are "
            f"{', '.join(sorted(tasks))}. Remove it, or add rows of its task to data.train_files."
        )
    checkpoints = resolve_teachers(teachers)
    for task, path in checkpoints.items():
        _check_model(config, settings, f"{KEY}.{task}={path}", path, tokenizer)
    return checkpoints


def _check_model(config: DictConfig, settings: Settings, setting: str, path: str, tokenizer: Any) -> None:
    from transformers import AutoConfig

    student = config.actor_rollout_ref.model
    trust, key = bool(student.trust_remote_code), setting.removesuffix(f"={path}")
    ours, theirs = tokenizer.get_vocab(), load_chat(path, trust, key).tokenizer.get_vocab()
    if theirs != ours:
        different = next(t for t in sorted(ours.keys() | theirs.keys()) if ours.get(t) != theirs.get(t))
        raise BadConfig(
            f"{setting}: its tokenizer gives other ids than the student's ({different!r} is {theirs.get(different)} "
            f"there and {ours.get(different)} in {student.path}). Distil from its answers: python -m sft.distill."
        )
    check_weights(path, trust, key)
    as_teacher = OmegaConf.merge(student, {"path": path})
    try:
        check_packing(as_teacher, "actor_rollout_ref.model")
        check_head(as_teacher, "actor_rollout_ref.model")
    except BadConfig as error:
        raise BadConfig(f"{setting}: the student's settings do not fit this teacher. {error}") from error
    sizes = [
        AutoConfig.from_pretrained(model, trust_remote_code=trust).get_text_config().vocab_size
        for model in (path, student.path)
    ]
    if any(each.compares_logits for each in settings.objectives) and sizes[0] != sizes[1]:
        raise BadConfig(
            f"{setting}: its head has {sizes[0]} outputs and that of {student.path} has {sizes[1]}. Use "
            "algorithm.objective=on_policy_distillation, which compares the sampled tokens."
        )
