"""Check a config against the rows and the model of its run.

Counts the steps, compares training with validation rows, and checks the model's context length.
"""

from __future__ import annotations

from collections.abc import Iterable

from omegaconf import DictConfig

from ditto.settings import BadConfig
from soul.rows.overlap import HeldOut
from soul.rows.task_files import TaskRow


def training_steps(config: DictConfig, rows: int) -> int:
    """How many steps the run takes.

    Args:
        rows: number of rows in the training set, after mixture and filters.

    Raises:
        BadConfig: there are too few rows for a step, or total_epochs ends the run before total_training_steps.
    """
    data, trainer = config.data, config.trainer
    steps_per_epoch = rows // data.train_batch_size
    if not steps_per_epoch:
        raise BadConfig(
            f"data.train_batch_size={data.train_batch_size}: the training set has {rows} rows (after data.mixture, "
            "data.filter_overlong_prompts and data.train_max_samples), fewer than one step needs. Lower "
            "data.train_batch_size, or add rows to data.train_files."
        )
    steps = steps_per_epoch * int(trainer.total_epochs)
    if trainer.total_training_steps is None:
        return steps
    if trainer.total_training_steps > steps:
        raise BadConfig(
            f"trainer.total_epochs={trainer.total_epochs}: the run would end after {steps} steps ({steps_per_epoch} "
            f"per epoch of {rows} rows), before trainer.total_training_steps={trainer.total_training_steps}, without "
            "its last checkpoint and validation. Raise trainer.total_epochs, or set trainer.total_training_steps=null "
            "to stop after the epochs."
        )
    return int(trainer.total_training_steps)


def check_overlap(config: DictConfig, train: Iterable[TaskRow], val: Iterable[TaskRow]) -> list[str]:
    """Check that no training row shares a group (a story, a conversation, a book, a user) with a validation row.

    Returns:
        The overlaps as lines for the plan; empty unless `data.allow_overlap` is true.

    Raises:
        BadConfig: there are overlaps, and `data.allow_overlap` is false.
    """
    overlaps = [str(overlap) for overlap in HeldOut(val).overlaps(train)]
    if overlaps and not config.data.allow_overlap:
        raise BadConfig(
            "data.train_files has rows from the same stories, conversations, books or users as data.val_files, so "
            f"validation would measure memorization. {'. '.join(overlaps)}. To remove these rows: python -m data.check "
            "TRAIN.parquet --against VAL.parquet --without-overlap CLEAN.parquet. To train on them anyway, set "
            "data.allow_overlap=true."
        )
    return overlaps


def check_model_length(config: DictConfig, teachers: Iterable[str] = ()) -> None:
    """Check that the model has enough positions for the rollout, without which vLLM refuses to start; its teachers too.

    Raises:
        BadConfig: one has too few.
    """
    from transformers import AutoConfig

    model, wanted = config.actor_rollout_ref.model, config.actor_rollout_ref.rollout.max_model_len
    for path in (model.path, *teachers):
        model_config = AutoConfig.from_pretrained(path, trust_remote_code=bool(model.trust_remote_code))
        positions = getattr(model_config.get_text_config(), "max_position_embeddings", None)
        if wanted is not None and positions is not None and wanted > positions:
            raise BadConfig(
                f"actor_rollout_ref.rollout.max_model_len={wanted}: {path} has {positions} positions "
                "(max_position_embeddings in its config.json). Lower data.max_prompt_length, data.max_feedback_length "
                "or data.max_response_length, or use a model with a longer context."
            )


def check_fp8(config: DictConfig) -> None:
    """Check that verl can quantise the model's rollout servers, if they are to compute in fp8.

    Raises:
        BadConfig: verl reads the number of layers from the top of the model's config, and this model has it in a part.
    """
    from transformers import AutoConfig

    model = config.actor_rollout_ref.model
    if config.actor_rollout_ref.rollout.quantization != "fp8":
        return
    whole = AutoConfig.from_pretrained(model.path, trust_remote_code=bool(model.trust_remote_code))
    if not hasattr(whole, "num_hidden_layers"):
        raise BadConfig(
            f"actor_rollout_ref.rollout.quantization=fp8: verl's vLLM server cannot start {model.path} "
            f"({whole.model_type}) so, as it is a model of text and images. Use null."
        )
