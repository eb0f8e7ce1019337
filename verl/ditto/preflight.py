"""Everything that can be checked before an engine starts, and the plan of a step.

Config, files, every row, prompt lengths with the real tokenizer, the model path and one real call to each role of the
judge gateway that will be asked (`judge_plan.py`): each mistake ends as one paragraph that names file, row, field and
remedy.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from agents import tasks
from agents.errors import SoulError
from agents.judge.preflight import Load
from agents.rows import TaskRow, read_rows
from ditto import judge_plan
from ditto.config_checks import check_config, check_model_length, check_overlap, training_steps
from ditto.model.attention_check import check_attention
from ditto.model.head_settings import check_head
from ditto.settings import BadConfig, Settings


class BadModel(SoulError):
    """`actor_rollout_ref.model.path` is not a model."""


@dataclass(frozen=True)
class StepPlan:
    """What one training step will do."""

    objective: str
    rows: int
    val_rows: int
    tasks: dict[str, int]
    prompt_tokens: tuple[float, int]  # mean, longest
    prompts: int
    sessions: int
    sequences: int
    updates: int
    steps: int
    judging: list[Load]
    cheaper: dict[str, dict[str, float]]  # options of tasks that need fewer calls, and the calls by role
    memory: list[str]  # lines about the memory of GPUs and hosts; none where no GPU trains
    overlaps: Sequence[str] = ()  # training rows in groups that are validated, where data.allow_overlap lets them pass

    def text(self) -> str:
        """The plan as people read it."""
        generations = self.sequences if self.objective == "grpo" else 2 * self.sessions
        mean, longest = self.prompt_tokens
        names = ", ".join(f"{name} {count}" for name, count in self.tasks.items())
        lines = [
            ("objective", self.objective),
            ("rows", f"{self.rows} train ({names}), {self.val_rows} validation"),
            ("prompt tokens", f"{mean:.0f} mean, {longest} longest"),
            ("steps", str(self.steps)),
            ("per step", f"{self.prompts} prompts, {self.sessions} sessions, {generations} generations"),
            ("", f"{self.sequences} training sequences, {self.updates} optimizer updates"),
        ]
        judging = judge_plan.describe(self.judging, self.steps, self.cheaper)
        lines += [("judge" if i == 0 else "", line) for i, line in enumerate(judging)]
        lines += [("memory" if i == 0 else "", line) for i, line in enumerate(self.memory)]
        lines += [("OVERLAP", f"{line} (data.allow_overlap=true)") for line in self.overlaps]
        return "\nPlan\n" + "\n".join(f"  {name:<14}{value}" for name, value in lines) + "\n"


def check(config: DictConfig) -> StepPlan:
    """Check everything and plan a step.

    Raises:
        SoulError: one of its kinds, with the remedy.
    """
    settings = Settings.of(config)
    tasks.configure(settings.tasks)
    check_config(config, settings)
    train = settings.mixture.training_rows(read_rows(_files(config, "train_files")))
    val = settings.mixture.validation_rows(read_rows(_files(config, "val_files")))
    overlaps = check_overlap(config, train, val)
    model, setting = config.actor_rollout_ref.model, "actor_rollout_ref.model.path"
    tokenizer = load_tokenizer(model.path, bool(model.trust_remote_code), setting, model.custom_chat_template)
    check_attention(config)
    check_head(model, config.actor_rollout_ref.actor, "actor_rollout_ref.model")
    train, lengths = _fitting_rows(config, tokenizer, train, "train_max_samples")
    val, _ = _fitting_rows(config, tokenizer, val, "val_max_samples")
    check_model_length(config)
    return replace(_plan(config, settings, train, val, lengths, tokenizer), overlaps=overlaps)


def _files(config: DictConfig, key: str) -> list[str]:
    value = OmegaConf.select(config, f"data.{key}", throw_on_missing=False)
    if value is None or OmegaConf.is_missing(config.data, key):
        raise BadConfig(f"data.{key} is not set: name the parquet files, e.g. data.{key}=[data/my.parquet].")
    return [str(value)] if isinstance(value, str) else [str(file) for file in value]


def load_tokenizer(path: str, trust: bool, setting: str, chat_template: str | None = None) -> Any:
    """The tokenizer of a model path or hub id.

    Args:
        trust: run code that comes with the model.
        setting: the name of the setting that holds the path, for messages.
        chat_template: takes the place of the tokenizer's own.

    Raises:
        BadModel: there is no such model, or it has no chat template.
    """
    from transformers import AutoConfig, AutoTokenizer

    try:
        AutoConfig.from_pretrained(path, trust_remote_code=trust)
        tokenizer = AutoTokenizer.from_pretrained(path, trust_remote_code=trust)
    except (OSError, ValueError) as error:
        local = (
            "an existing folder" if Path(path).exists() else "neither an existing folder nor a model that the hub knows"
        )
        raise BadModel(
            f"{setting}={path}: {local} ({' '.join(str(error).split())[:300]}). Give a folder with "
            "config.json, tokenizer and weights, or a full hub id such as Qwen/Qwen3-8B (ACTOR_MODEL_PATH)."
        ) from error
    if chat_template is not None:
        tokenizer.chat_template = chat_template
    if not tokenizer.chat_template:
        raise BadModel(f"{setting}={path}: the tokenizer has no chat template. Use an instruct model.")
    return tokenizer


def _fitting_rows(
    config: DictConfig, tokenizer: Any, rows: list[TaskRow], samples: str
) -> tuple[list[TaskRow], list[int]]:
    """The rows that the dataset will hold, and the tokens of their prompts."""
    from ditto.lengths import check_lengths

    data = config.data
    template = dict(data.get("apply_chat_template_kwargs") or {})
    rows, lengths = check_lengths(rows, tokenizer, data.max_prompt_length, template, data.filter_overlong_prompts)
    first = data[samples] if data[samples] and data[samples] > 0 else None
    return rows[:first], lengths[:first]


def _plan(
    config: DictConfig, settings: Settings, train: list[TaskRow], val: list[TaskRow], lengths: list[int], tokenizer: Any
) -> StepPlan:
    prompts, n = config.data.train_batch_size, config.actor_rollout_ref.rollout.n
    sessions = prompts * n
    counts: dict[str, int] = {}
    for row in train:
        counts[row.task.name] = counts.get(row.task.name, 0) + 1
    mean = statistics.fmean(lengths)
    step = (train, settings.objective.refines, sessions, settings.gateway.by_task)
    asked = judge_plan.roles_asked(*step)
    return StepPlan(
        objective=settings.objective.name,
        rows=len(train),
        val_rows=len(val),
        tasks=counts,
        prompt_tokens=(mean, max(lengths)),
        prompts=prompts,
        sessions=sessions,
        sequences=sessions * len(settings.objective.kinds),
        updates=prompts
        // config.actor_rollout_ref.actor.ppo_mini_batch_size
        * config.actor_rollout_ref.actor.ppo_epochs,
        steps=training_steps(config, len(train)),
        judging=judge_plan.plan(settings, asked, mean, config),
        cheaper=judge_plan.cheaper_options(*step),
        memory=_memory(config),
    )


def _memory(config: DictConfig) -> list[str]:
    """The memory plan; it needs torch and seconds, so a machine without GPUs does not wait for it."""
    if config.trainer.device == "cpu":
        return []
    from ditto.memory.plan import plan

    made = plan(config)
    made.check()
    return made.lines()
