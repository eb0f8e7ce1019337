"""Check everything that can be checked before an engine starts, and plan a step.

The checks cover the config, the files, every row, prompt lengths with the real tokenizer, the model path, and one real
call to each judge role that the run uses (`judging/plan.py`). Each mistake is one paragraph that names the file, row
and field, and says what to do. Facts that need neither verl nor each other are reported together, before verl is
imported.
"""

import statistics
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from omegaconf import DictConfig, OmegaConf

from ditto.config_checks.resume import check_changes
from ditto.config_checks.rl_rules import check_config, check_every_type
from ditto.judging import plan as judge_plan
from ditto.launching.compose import SEPARATE
from ditto.launching.variables import VARIABLE, cpu_variables
from ditto.memory.cpu import fit
from ditto.memory.plan import check_gpu, check_rl
from ditto.model.adapter_check import check_adapter
from ditto.model.exactness import check_head, check_packing
from ditto.model.expert_checkpoints import check_teachers
from ditto.model.model_folder import Chat, check_vocabulary, check_weights, load_chat
from ditto.policies import BASE, FIRST_SEAT
from ditto.rows.lengths import fitting_rows
from ditto.run.checkpoint import ResumeChoice
from ditto.settings import BadConfig, Settings
from ditto.verl_hooks import installed_verl
from soul import tasks
from soul.chat.template_check import BadTemplate
from soul.errors import Mistakes
from soul.files.disk_writes import check_writable
from soul.one_turn import OneTurnTask
from soul.rows.overlap import HeldOut
from soul.rows.task_files import TaskRow, read_rows
from soul.task import Task


def check(config: DictConfig) -> str:
    """Check everything and plan a step. Returns the plan, for people. Raises SoulError."""
    model, setting = config.actor_rollout_ref.model, "actor_rollout_ref.model.path"
    found = Mistakes()
    with found.of():
        other_verl = installed_verl.describe()
    with found.of():
        settings, choice = check_settings(config)
    with found.of():
        chat = check_chat(config)
        check_vocabulary(model.path, bool(model.trust_remote_code), setting, chat.tokenizer)
    with found.of():
        check_weights(model.path, bool(model.trust_remote_code), setting)
    with found.of():
        adapted = check_adapter(model, "actor_rollout_ref.model")
    with found.of():
        check_model_length(config)
    with found.of():
        available = read_rows(_files(config, "train_files"))
    with found.of():
        tested = read_rows(_files(config, "val_files"))
    found.report()
    train = settings.mixture.training_rows(available, config.data.seed)
    drawn = settings.mixture.summary(available, train, config.data.seed)
    val = settings.mixture.validation_rows(tested)
    if not train:
        raise BadConfig("data.mixture selects no training row. Raise data.mixture.weights.")
    _check_seats(settings, {row.task for row in train})
    overlaps = check_overlap(config, train, val)
    check_dialogues(config, chat, {row.task for row in (*train, *val)})
    check_gpu(config)
    check_packing(model, "actor_rollout_ref.model")
    check_head(model, "actor_rollout_ref.model")
    train, lengths = fitting_rows(config.data, train, chat.tokenizer, config.data.train_max_samples)
    val, _ = fitting_rows(config.data, val, chat.tokenizer, config.data.val_max_samples)
    teachers = check_teachers(config, settings, {row.task.name for row in train}, chat.tokenizer)
    if teachers:
        check_model_length(config, teachers.values())
    lines = _plan(config, settings, train, val, lengths, teachers)
    changes = check_changes(config, choice.folder)  # once the config holds everything that is derived
    if choice.step >= (steps := training_steps(config, len(train))):
        changes += [f"NOTHING IS LEFT TO TRAIN: {steps} steps are done. Raise trainer.total_training_steps for more"]
    lines += [("verl", other_verl)] if other_verl else []
    lines += [("chat template" if i == 0 else "", note) for i, note in enumerate(chat.format.notes)]
    lines += [("LoRA adapts", ", ".join(adapted))] if adapted else []
    lines += [("mixture", drawn)] if drawn else []
    for split, rows in (("training", available), ("validation", tested)):
        if copies := len(rows) - len({(row.task.name, row.row.model_dump_json(exclude={"index"})) for row in rows}):
            lines.append(("COPIES", f"{copies} of {len(rows)} {split} rows repeat another row and count again"))
    lines += [("resume" if i == 0 else "", line) for i, line in enumerate(changes)]
    lines += [("OVERLAP", f"{overlap} (data.allow_overlap=true)") for overlap in overlaps]
    return "\nPlan\n" + "\n".join(f"  {name:<14}{value}" for name, value in lines) + "\n"


def _check_seats(settings: Settings, played: Collection[Task[Any]]) -> None:
    """Refuse a policy in a seat that no training row has: it would never learn. Raises BadConfig."""
    seats = {FIRST_SEAT}.union(*(task.further_sides for task in played))
    for policy in settings.policies:
        if missing := sorted(set(policy.seats) - seats):
            raise BadConfig(
                f"policies.{policy.name}.seats: no training row has the seat {missing[0]}; the seats are "
                f"{', '.join(sorted(seats))}. In Sotopia, tasks.sotopia.seats=both adds `partner`."
            )


def check_chat(config: DictConfig) -> Chat:
    """Check tokenizer and chat template; the config then holds the template's text, which every worker uses."""
    model, setting = config.actor_rollout_ref.model, "actor_rollout_ref.model.path"
    kwargs = dict(config.data.get("apply_chat_template_kwargs") or {})
    chat = load_chat(
        model.path, bool(model.trust_remote_code), setting, model.custom_chat_template, template_kwargs=kwargs
    )
    if chat.changed:
        model.custom_chat_template = chat.tokenizer.chat_template
    return chat


def check_dialogues(config: DictConfig, chat: Chat, played: Collection[Task[Any]]) -> None:
    """Refuse tasks of several turns if the chat template cannot be continued turn by turn. Raises BadTemplate."""
    dialogues = sorted(task.name for task in played if not isinstance(task, OneTurnTask))
    if chat.format.dialogue_problem and dialogues:
        raise BadTemplate(
            f"actor_rollout_ref.model.path={config.actor_rollout_ref.model.path}: {chat.format.dialogue_problem} Tasks "
            f"of one turn can be trained with it; {', '.join(dict.fromkeys(dialogues))} cannot."
        )


def check_settings(config: DictConfig) -> tuple[Settings, ResumeChoice]:
    """Check what needs none of the user's files: every value, and whether the run can write to its folders.

    Returns:
        The settings of our own sections, and the checkpoint that the run resumes from.
    """
    check_every_type(config)
    settings = Settings.from_config(config)
    tasks.configure(settings.tasks)
    found = Mistakes()
    with found.of():
        choice = check_config(config, settings)
    keys = {OmegaConf.select(config, key): key for key in ("judge.cache_dir", "trainer.default_local_dir", "run.dir")}
    for folder, key in keys.items():  # each folder once
        if folder is not None:
            with found.of():
                check_writable(folder, key)
    found.report()
    return settings, choice


def _files(config: DictConfig, key: str) -> list[str]:
    value = OmegaConf.select(config, f"data.{key}", throw_on_missing=False)
    files = [value] if isinstance(value, str) else list(value or [])
    if not all(files) or not files:
        raise BadConfig(f"data.{key}={files}: name the parquet files, e.g. data.{key}=[data/my.parquet].")
    twice = [file for file in files if files.count(file) > 1]
    if twice:
        raise BadConfig(
            f"data.{key} lists {twice[0]} twice. List it once; to repeat the rows of a task, raise its factor in "
            "data.mixture.weights."
        )
    return files


def _plan(
    config: DictConfig,
    settings: Settings,
    train: list[TaskRow],
    val: list[TaskRow],
    lengths: list[int],
    teachers: Mapping[str, str],
) -> list[tuple[str, str]]:
    """The lines of the plan, each with its heading."""
    actor, objective = config.actor_rollout_ref.actor, max(settings.objectives, key=lambda each: len(each.kinds))
    prompts, mean, steps = config.data.train_batch_size, statistics.fmean(lengths), training_steps(config, len(train))
    sessions = prompts * config.actor_rollout_ref.rollout.n
    generations, sequences = sessions * (2 if objective.refines else 1), sessions * len(objective.kinds)
    updates = prompts // actor.ppo_mini_batch_size * actor.ppo_epochs
    names = ", ".join(f"{name} {count}" for name, count in Counter(row.task.name for row in train).items())
    most = (config.data.max_prompt_length, config.data.max_feedback_length, config.data.max_response_length)
    lengths_line = "prompt {:,}, feedback {:,}, answer {:,} tokens at most; a sequence {:,}".format(
        *most, config.actor_rollout_ref.rollout.max_model_len
    )
    train_on, sample_on = (
        each.nnodes * each.n_gpus_per_node for each in (config.trainer, config.actor_rollout_ref.rollout)
    )
    parts = config.trainer.v1.separate_async.parameter_sync_step
    mode = f"{SEPARATE}: {train_on} devices train, {sample_on} sample; {parts} parts a step between two weight syncs"
    step = (train, objective, sessions, settings.gateway.by_task)
    canary = judge_plan.canary_calls(train, generations, settings.gateway)
    loads = judge_plan.plan(settings, judge_plan.calls_per_step(*step) | canary, mean, config)
    judging = judge_plan.describe(loads, steps)
    return [
        ("objective", objective.name),
        *(
            ("policy", f"{each.name} plays {', '.join(each.seats)}: {each.objective.name if each.objective else BASE}")
            for each in settings.policies
        ),
        *(("teachers" if i == 0 else "", f"{task}: {path}") for i, (task, path) in enumerate(teachers.items())),
        ("rows", f"{len(train)} train ({names}), {len(val)} validation"),
        ("prompt tokens", f"{mean:.0f} mean, {max(lengths)} longest"),
        ("lengths", lengths_line),
        ("steps", str(steps)),
        *([("mode", mode)] if config.trainer.v1.trainer_mode == SEPARATE else []),
        ("per step", f"{prompts} prompts, {sessions} sessions, {generations} generations"),
        ("", f"{sequences} training sequences, {updates} optimizer updates"),
        *(("judge" if i == 0 else "", line) for i, line in enumerate(judging)),
        *(("memory" if i == 0 else "", line) for i, line in enumerate(_memory(config, teachers.values()))),
    ]


def _memory(config: DictConfig, teachers: Collection[str]) -> list[str]:
    """Lines of the memory plan. On a CPU, what the config leaves open is chosen here."""
    if config.trainer.device != "cpu":
        return check_rl(config, teachers)
    return [*fit(config, teachers), f"{cpu_variables(config)[VARIABLE]} threads for each process that computes"]


def training_steps(config: DictConfig, rows: int) -> int:
    """The number of steps of the run.

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
    """Check that model and teachers have enough positions for the rollout, without which vLLM refuses to start."""
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
