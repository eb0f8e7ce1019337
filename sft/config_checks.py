"""Check the values of a supervised training's config, before any file or model is opened."""

from __future__ import annotations

from collections.abc import Mapping
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
    FROM_ZERO,
    LORA,
    NOT_NEGATIVE,
    OPTIMIZER,
    POSITIVE_OR_NULL,
    SEED,
    TOKENS,
    TRAINER,
    Number,
    below,
)
from ditto.config_checks.overrides import leaves, unknown_key
from ditto.config_checks.rules import (
    TRAINER_RULES,
    Rule,
    Run,
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

SFT_NUMBERS: dict[str, Number] = {
    **below("optim", OPTIMIZER),
    **below("engine", ENGINE),
    **below("model", LORA),
    **below(
        "data",
        {
            "train_batch_size": COUNT,
            "micro_batch_size_per_gpu": COUNT_OR_NULL,
            "max_token_len_per_gpu max_prompt_length max_response_length": TOKENS,
            "tokenizer_workers num_workers": FROM_ZERO,
            "seed": SEED,
        },
    ),
    **below("trainer", TRAINER),
    **below(
        "trainer",
        {"max_ckpt_to_keep": COUNT_OR_NULL, "rl_test_freq": FROM_ZERO, "rl_test_limit": COUNT, "seed": SEED},
    ),
    "memory.gpu_gib": POSITIVE_OR_NULL,
    "run.save_on_signal_s": NOT_NEGATIVE,
}

_TWINS = {
    "model": "actor_rollout_ref.model",
    "engine": "actor_rollout_ref.actor.fsdp_config",
    "optim": "actor_rollout_ref.actor.optim",
}
_OWN = (  # checked separately here, or read with engine.strategy=fsdp
    *("engine.strategy", "engine.ulysses_sequence_parallel_size", "engine.use_orig_params"),
    "engine.wrap_policy.min_num_params",
)
# verl's keys that this training does not read -> what to use instead.
_ROWS = "sft/corpus/row_encoder.py reads rows: a file has messages, extra_info.messages, or prompt and response."
UNREAD: dict[str, str] = {
    "data.max_length": "a sequence may have data.max_prompt_length + data.max_response_length tokens: set those.",
    "data.truncation": "data.overlong decides what happens to a long sequence: drop, truncate or error.",
    "data.enable_thinking_default": "set data.apply_chat_template_kwargs.enable_thinking.",
    **same(
        _ROWS,
        "data",
        "messages_key tools_key enable_thinking_key custom_cls.path custom_cls.name ignore_input_ids_mismatch",
    ),
    "data.train_max_samples": "give the files a ratio: TRAIN_FILES=chat.parquet:0.5 takes half of the rows per epoch.",
    "data.val_max_samples": "give the files a ratio in VAL_FILES, or name fewer files.",
    "data.balance_dp_token": "sft/corpus/batches.py balances the tokens of the ranks.",
    "data.use_shm": "files are read in place.",
    "trainer.default_hdfs_dir": "checkpoints are written to trainer.default_local_dir only.",
    "model.custom_chat_template": "set model.chat_template to a file: the corpus is tokenised with it, too.",
    "optim.total_training_steps": "it follows trainer.total_training_steps: set that.",
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
    one_of("engine.strategy", "fsdp", "fsdp2"),
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
        lambda run: run.data.use_dynamic_bsz and run.data.max_token_len_per_gpu < run.longest,
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
)


def check_config(config: DictConfig) -> None:
    """Check the values of all keys."""
    defaults = _defaults("cpu" if OmegaConf.select(config, "trainer.device") == "cpu" else "gpu")
    check_types(config, defaults, SFT_NUMBERS)
    _refuse_unread(config, dict(leaves(OmegaConf.to_container(defaults))))
    run = SftRun(config)
    for rule in RULES:
        rule.check(run)


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
    return f"{_TWINS[section]}.{name}" if section in _TWINS and key not in _OWN else ""


@cache
def _defaults(platform: str) -> DictConfig:
    """The config without any override, unresolved. Do not change it: every caller gets the same one."""
    return compose_config(str(CONFIG_DIR), "sft", [f"platform={platform}"])
