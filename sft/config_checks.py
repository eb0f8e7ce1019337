"""Check the values of a supervised training's config, before any file or model is opened."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from ditto.config_checks.fixed_keys import FIXED, same
from ditto.config_checks.keys import Reader, pattern_of, reader_of
from ditto.config_checks.numbers import (
    COUNT,
    COUNT_OR_NULL,
    ENGINE,
    FREQUENCY,
    FROM_ZERO,
    LORA,
    NOT_NEGATIVE,
    OPTIMIZER,
    POSITIVE_OR_NULL,
    SEED,
    TOKENS,
    TOKENS_OR_NULL,
    TRAINER,
    Number,
    below,
)
from ditto.config_checks.overrides import leaves, unknown_key
from ditto.config_checks.rules import (
    TRAINER_RULES,
    Rule,
    Run,
    adapter_rule,
    check_rules,
    checkpointing_rule,
    chosen_on_a_cpu,
    engine_rules,
    one_of,
    optimizer_rules,
    saved_parts,
    some_of,
)
from ditto.config_checks.value_types import check_types
from ditto.launching.compose import compose_config
from ditto.settings import BadConfig

CONFIG_DIR = Path(__file__).parent / "config"
_PARTS = ("model", "optimizer", "extra", "hf_model")
AFTER_EACH_EPOCH = "after_each_epoch"  # trainer.save_freq, trainer.test_freq

SFT_NUMBERS: dict[str, Number] = {
    **below("optim", OPTIMIZER),
    **below("engine", ENGINE),
    **below("model", LORA),
    **below(
        "data",
        {
            "train_batch_size": COUNT,
            "max_prompt_length max_response_length": TOKENS,
            "max_token_len_per_gpu": TOKENS_OR_NULL,  # null on a CPU: chosen by memory_plan.py
            "tokenizer_workers": Number(0, whole=True, null=True),
            "num_workers": FROM_ZERO,
            "seed": SEED,
        },
    ),
    **below("trainer", TRAINER),
    **below(
        "trainer",
        {
            "save_freq test_freq": replace(FREQUENCY, word=AFTER_EACH_EPOCH),
            "max_ckpt_to_keep": COUNT_OR_NULL,
            "max_ckpt_gb": POSITIVE_OR_NULL,
            "rl_test_freq": FROM_ZERO,
            "rl_test_limit": COUNT,
            "seed": SEED,
        },
    ),
    "memory.gpu_gib": POSITIVE_OR_NULL,
    "run.save_on_signal_s": NOT_NEGATIVE,
}

_TWINS = {
    "model": "actor_rollout_ref.model",
    "engine": "actor_rollout_ref.actor.fsdp_config",
    "optim": "actor_rollout_ref.actor.optim",
}
_ROWS = "sft/corpus/row_encoder.py reads rows: docs/sft.md lists their layouts."
_PACKED = "micro-batches are filled with sequences up to data.max_token_len_per_gpu tokens: set that."
# Keys of verl's SFT config that ours lacks, because nothing here would read them -> what to use instead.
LEFT_OUT: dict[str, str] = {
    "data.max_length": "a sequence may have data.max_prompt_length + data.max_response_length tokens: set those.",
    "data.truncation": "data.overlong decides what happens to a long sequence: drop, truncate or error.",
    "data.enable_thinking_default": "set data.apply_chat_template_kwargs.enable_thinking.",
    **same(
        _ROWS,
        "data",
        "messages_key tools_key enable_thinking_key custom_cls.path custom_cls.name ignore_input_ids_mismatch",
    ),
    **same(_PACKED, "data", "use_dynamic_bsz micro_batch_size_per_gpu"),
    "data.train_max_samples": "give the files a ratio: TRAIN_FILES=chat.parquet:0.5 takes half of the rows per epoch.",
    "data.val_max_samples": "give the files a ratio in VAL_FILES, or name fewer files.",
    **same(
        "sft/corpus/batches.py balances the tokens of the ranks.", "", "data.balance_dp_token trainer.balance_batch"
    ),
    "data.use_shm": "files are read in place.",
    "trainer.default_hdfs_dir": "checkpoints are in trainer.default_local_dir; trainer.upload_to copies them.",
}
# Keys that must keep their default -> why, and what to use instead. `FIXED` has those that RL does not read either.
UNREAD: dict[str, str] = {
    "model.custom_chat_template": "set model.chat_template to a file: the corpus is tokenised with it, too.",
    "optim.total_training_steps": "it follows trainer.total_training_steps: set that.",
    "engine.strategy": (
        "checkpoints, exports and a resume with another number of processes work with FSDP2 only. Leave fsdp2."
    ),
    "engine.ulysses_sequence_parallel_size": (
        "splitting a sequence across devices is not supported: attention here needs whole sequences. Leave it at 1; "
        "for long sequences, lower data.max_token_len_per_gpu to the longest sequence, or set "
        "engine.offload_policy=true."
    ),
}


class SftRun(Run):
    """A supervised training."""

    @property
    def longest(self) -> int:
        """Tokens of the longest sequence that the limits of `data` allow."""
        return int(self.data.max_prompt_length + self.data.max_response_length)


RULES: tuple[Rule, ...] = (
    *TRAINER_RULES,
    *optimizer_rules("optim"),
    *engine_rules("engine"),
    adapter_rule("model"),
    checkpointing_rule("model"),
    chosen_on_a_cpu("data.max_token_len_per_gpu"),
    one_of("data.pad_mode", "no_padding"),
    some_of("checkpoint.save_contents", *_PARTS),
    some_of("checkpoint.load_contents", *_PARTS),
    saved_parts("checkpoint.save_contents"),
    Rule(
        "data.train_batch_size",
        lambda run: run.data.train_batch_size % run.devices,
        lambda run: f"cannot be divided evenly among {run.devices} devices. Use a multiple.",
    ),
    Rule(
        "data.max_token_len_per_gpu",
        lambda run: (run.data.max_token_len_per_gpu or run.longest) < run.longest,
        lambda run: (
            f"is less than one sequence may have ({run.longest} tokens). Raise it, or lower data.max_prompt_length or "
            "data.max_response_length."
        ),
    ),
    Rule(
        "trainer.rl_test_freq",
        lambda run: run.trainer.rl_test_freq and not run.trainer.rl_test_files,
        "asks for a generative test: name its files with trainer.rl_test_files.",
    ),
    Rule(
        "checkpoint.save_lora_only",
        lambda run: run.config.checkpoint.save_lora_only and not run.config.model.lora_rank,
        "needs an adapter: set model.lora_rank.",
    ),
    Rule(
        "trainer.rl_test_freq",
        lambda run: run.trainer.rl_test_freq and run.config.checkpoint.save_lora_only,
        "evaluates a checkpoint as a model, and with checkpoint.save_lora_only=true it is none. Use one of the two.",
    ),
    Rule(
        "trainer.profile_interval",
        lambda run: not _is_interval(run.trainer.profile_interval),
        "use the first and the last step to profile, such as [3,5], or [-1,-1] for none.",
    ),
    Rule(
        "profiler.enable",
        lambda run: run.config.profiler.enable != (run.trainer.profile_interval[0] > 0),
        "needs trainer.profile_interval=[first step,last step], and the other way round: set both or neither.",
    ),
)


def _is_interval(value: Any) -> bool:
    """Tell whether a value is two steps in order, or [-1, -1]."""
    if len(value) != 2 or any(type(step) is not int for step in value):
        return False
    return value == [-1, -1] or 0 < value[0] <= value[1]


def refuse_left_out(words: Sequence[str]) -> None:
    """Refuse words of a command line that set a key of verl's SFT config that ours lacks.

    Raises:
        BadConfig: names the key and says what to use instead.
    """
    for word in words:
        key = word.lstrip("+~").partition("=")[0].strip()
        reason = LEFT_OUT.get(key) or next((why for name, why in LEFT_OUT.items() if name.startswith(f"{key}.")), None)
        if reason and "." in key:
            raise BadConfig(f"{key}: {reason}")


def check_config(config: DictConfig) -> None:
    """Check the values of all keys."""
    # The rules name an unknown device, so its null values must pass until then; only cuda refuses null.
    defaults = _defaults("gpu" if OmegaConf.select(config, "trainer.device") == "cuda" else "cpu")
    check_types(config, defaults, SFT_NUMBERS)
    _refuse_unread(config, dict(leaves(OmegaConf.to_container(defaults))))
    check_rules(RULES, SftRun(config))


def _refuse_unread(config: DictConfig, usual: Mapping[str, Any]) -> None:
    """Refuse overrides of keys that this training does not read, and unknown keys."""
    for key, value in leaves(OmegaConf.to_container(config)):
        if key in usual and (value == usual[key] or "${" in str(usual[key])):
            continue
        twin = _twin(key)
        reason = UNREAD.get(key) or (FIXED[pattern_of(twin) or ""] if reader_of(twin) is Reader.FIXED else None)
        if reason:
            raise BadConfig(f"{key}={value!r}: {reason}")
        known = key in usual or reader_of(twin) is not None or key == "dry_run"
        if not known and not any(f"{key}.".startswith(f"{leaf}.") for leaf in usual):
            raise BadConfig(f"{key}={value!r}: {unknown_key(key, usual, 'train_sft.py')}")


def _twin(key: str) -> str:
    """The RL key that the same code of verl reads, so that the same checks apply; "" if there is none."""
    section, _, name = key.partition(".")
    return f"{_TWINS[section]}.{name}" if section in _TWINS else ""


@cache
def _defaults(platform: str) -> DictConfig:
    """The config without any override, unresolved. Do not change it: every caller gets the same one."""
    return compose_config(str(CONFIG_DIR), "sft", [f"platform={platform}"])
