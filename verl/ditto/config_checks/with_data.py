"""Checks of a config against the rows and the model of a run.

They count the steps, compare training with validation rows, and check the length that the model can read.
"""

from __future__ import annotations

from collections.abc import Iterable

from omegaconf import DictConfig

from ditto.settings import BadConfig
from soul.rows.overlap import HeldOut
from soul.rows.task_files import TaskRow


def training_steps(config: DictConfig, rows: int) -> int:
    """How many steps the run will take.

    Args:
        rows: of the training set, as the dataset will hold them.

    Raises:
        BadConfig: there is no step, or the epochs end before the steps.
    """
    data, trainer = config.data, config.trainer
    in_epoch = rows // data.train_batch_size
    if not in_epoch:
        raise BadConfig(
            f"data.train_batch_size={data.train_batch_size}: the training set has {rows} rows (after data.mixture, "
            "data.filter_overlong_prompts and data.train_max_samples), fewer than a step takes. Lower "
            "data.train_batch_size, or add rows to data.train_files."
        )
    in_epochs = in_epoch * int(trainer.total_epochs)
    if trainer.total_training_steps is None:
        return in_epochs
    if trainer.total_training_steps > in_epochs:
        raise BadConfig(
            f"trainer.total_epochs={trainer.total_epochs}: the run would end after {in_epochs} steps ({in_epoch} a "
            f"pass over {rows} rows), before trainer.total_training_steps={trainer.total_training_steps}, without its "
            "last checkpoint and validation. Set trainer.total_training_steps=null to count epochs, or raise "
            "trainer.total_epochs."
        )
    return int(trainer.total_training_steps)


def check_overlap(config: DictConfig, train: Iterable[TaskRow], val: Iterable[TaskRow]) -> list[str]:
    """Check that no training row shares a group (a story, a conversation, a book, a user) with a validation row.

    Returns:
        The overlaps as lines for the plan; only where `data.allow_overlap` lets them pass.

    Raises:
        BadConfig: there are some.
    """
    found = [str(overlap) for overlap in HeldOut(val).overlaps(train)]
    if found and not config.data.allow_overlap:
        raise BadConfig(
            "data.train_files holds rows of the same stories, conversations, books or users as data.val_files, so "
            f"validation would measure what the model remembers. {'. '.join(found)}. Leave these rows out: python -m "
            "data.check TRAIN.parquet --against VAL.parquet --without-overlap CLEAN.parquet. To train on them anyway, "
            "set data.allow_overlap=true."
        )
    return found


def check_model_length(config: DictConfig) -> None:
    """Check that the model has as many positions as the rollout wants; vLLM would refuse to start.

    Raises:
        BadConfig: it has fewer.
    """
    from transformers import AutoConfig

    model, wanted = config.actor_rollout_ref.model, config.actor_rollout_ref.rollout.max_model_len
    described = AutoConfig.from_pretrained(model.path, trust_remote_code=bool(model.trust_remote_code))
    positions = getattr(described.get_text_config(), "max_position_embeddings", None)
    if wanted is not None and positions is not None and wanted > positions:
        raise BadConfig(
            f"actor_rollout_ref.rollout.max_model_len={wanted}: {model.path} has {positions} positions "
            "(max_position_embeddings in its config.json). Lower data.max_prompt_length, data.max_feedback_length or "
            "data.max_response_length, or use a model with a longer context."
        )
