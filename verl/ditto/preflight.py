"""Check everything that can be checked before an engine starts, and plan a step.

The checks cover the config, the files, every row, prompt lengths with the real tokenizer, the model path, and one real
call to each judge role that the run uses (`judging/plan.py`). Each mistake is one paragraph that names the file, row
and field, and says what to do.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from omegaconf import DictConfig, OmegaConf

from ditto.config_checks import check_config, check_every_type, check_model_length, check_overlap, training_steps
from ditto.judging import plan as judge_plan
from ditto.model.attention_check import check_attention
from ditto.model.head_settings import check_head
from ditto.model.tokenizer_check import load_tokenizer
from ditto.model.weights_check import check_weights
from ditto.settings import BadConfig, Settings
from soul import tasks
from soul.files.writable import check_writable
from soul.judge.preflight import Load
from soul.rows.task_files import TaskRow, read_rows


@dataclass(frozen=True)
class StepPlan:
    """What one training step will do."""

    objective: str
    rows: int
    val_rows: int
    tasks: dict[str, int]
    prompt_tokens: tuple[float, int]  # mean and longest, over the training rows
    prompts: int
    sessions: int
    generations: int
    sequences: int
    updates: int
    steps: int
    judging: list[Load]
    cheaper: dict[str, dict[str, float]]  # task option that saves judge calls -> calls per step by role
    memory: list[str]  # lines about GPU and host memory; empty on the CPU platform
    overlaps: Sequence[str] = ()  # training rows whose group is also validated; only with data.allow_overlap=true

    def text(self) -> str:
        """The plan as the dry run prints it."""
        mean, longest = self.prompt_tokens
        names = ", ".join(f"{name} {count}" for name, count in self.tasks.items())
        lines = [
            ("objective", self.objective),
            ("rows", f"{self.rows} train ({names}), {self.val_rows} validation"),
            ("prompt tokens", f"{mean:.0f} mean, {longest} longest"),
            ("steps", str(self.steps)),
            ("per step", f"{self.prompts} prompts, {self.sessions} sessions, {self.generations} generations"),
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
        SoulError: a subclass that names the mistake; the message says what to do.
    """
    settings = check_settings(config)
    train = settings.mixture.training_rows(read_rows(_files(config, "train_files")))
    val = settings.mixture.validation_rows(read_rows(_files(config, "val_files")))
    if not train:
        raise BadConfig("data.mixture selects no training row. Raise data.mixture.weights.")
    overlaps = check_overlap(config, train, val)
    model, setting = config.actor_rollout_ref.model, "actor_rollout_ref.model.path"
    tokenizer = load_tokenizer(model.path, bool(model.trust_remote_code), setting, model.custom_chat_template)
    check_weights(model.path, bool(model.trust_remote_code), setting)
    check_attention(config)
    check_head(model, config.actor_rollout_ref.actor, "actor_rollout_ref.model")
    train, lengths = _fitting_rows(config, tokenizer, train, "train_max_samples")
    val, _ = _fitting_rows(config, tokenizer, val, "val_max_samples")
    check_model_length(config)
    return replace(_plan(config, settings, train, val, lengths, tokenizer), overlaps=overlaps)


def check_settings(config: DictConfig) -> Settings:
    """Check what needs none of the user's files: every value, and whether the run can write to its folders.

    Returns:
        The settings of our own sections.
    """
    check_every_type(config)
    settings = Settings.from_config(config)
    tasks.configure(settings.tasks)
    check_config(config, settings)
    for folder in ("run.dir", "trainer.default_local_dir", "judge.cache_dir"):
        if OmegaConf.select(config, folder) is not None:
            check_writable(OmegaConf.select(config, folder), folder)
    return settings


def _files(config: DictConfig, key: str) -> list[str]:
    value = OmegaConf.select(config, f"data.{key}", throw_on_missing=False)
    if value is None or OmegaConf.is_missing(config.data, key):
        raise BadConfig(f"data.{key} is not set: name the parquet files, e.g. data.{key}=[data/my.parquet].")
    files = [value] if isinstance(value, str) else list(value)
    if not all(files) or not files:
        raise BadConfig(f"data.{key}={files}: name the parquet files, e.g. data.{key}=[data/my.parquet].")
    twice = [file for file in files if files.count(file) > 1]
    if twice:
        raise BadConfig(
            f"data.{key} lists {twice[0]} twice. List it once; to repeat the rows of a task, raise its factor in "
            "data.mixture.weights."
        )
    return files


def _fitting_rows(
    config: DictConfig, tokenizer: Any, rows: list[TaskRow], samples: str
) -> tuple[list[TaskRow], list[int]]:
    """The rows that the dataset will hold, and the lengths of their prompts in tokens."""
    from ditto.rows.lengths import check_lengths

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
    calls = judge_plan.calls_per_step(*step)
    return StepPlan(
        objective=settings.objective.name,
        rows=len(train),
        val_rows=len(val),
        tasks=counts,
        prompt_tokens=(mean, max(lengths)),
        prompts=prompts,
        sessions=sessions,
        generations=sessions * (2 if settings.objective.refines else 1),
        sequences=sessions * len(settings.objective.kinds),
        updates=prompts
        // config.actor_rollout_ref.actor.ppo_mini_batch_size
        * config.actor_rollout_ref.actor.ppo_epochs,
        steps=training_steps(config, len(train)),
        judging=judge_plan.plan(settings, calls, mean, config),
        cheaper=judge_plan.cheaper_options(*step),
        memory=_memory(config),
    )


def _memory(config: DictConfig) -> list[str]:
    """Lines of the memory plan. Computing it imports torch and takes seconds, so the CPU platform skips it."""
    if config.trainer.device == "cpu":
        return []
    from ditto.memory.plan import plan

    memory_plan = plan(config)
    memory_plan.check()
    return memory_plan.lines()
