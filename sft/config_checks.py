"""Check the config of a supervised training before any file or model is opened: keys, types, and rules."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

from omegaconf import DictConfig

from ditto.config_checks.key_types import (
    Count,
    Frequency,
    FromZero,
    Key,
    Keys,
    NotNegative,
    Open,
    Seed,
    Text,
    Texts,
    Tokens,
    below,
    check_types,
    of_model,
)
from ditto.config_checks.keys import CHECKPOINT, ENGINE, MODEL, OPTIMIZER, TRAINER
from ditto.config_checks.rules import Rule, Run, check_rules, chosen_on_a_cpu, model_rules, trainer_rules
from ditto.launching.override_parser import Program
from ditto.settings import MemorySettings

CONFIG_DIR = Path(__file__).resolve().parent / "config"
AFTER_EACH_EPOCH = "after_each_epoch"  # trainer.save_freq, trainer.test_freq
Role = Literal["assistant", "human"]
Often = Frequency | Literal["after_each_epoch"]

_DATA: Keys = {
    "dir": Key(str, "Folder of the corpus, where train_files and val_files are null."),
    "train_files": Key(
        Texts | None,
        "Files, folders or globs, space-separated or as a list, each with an optional ratio, e.g. `chat.parquet:0.5` "
        "(passes in one epoch).",
    ),
    "val_files": Key(Texts | None, "Files or globs for the validation loss."),
    "max_prompt_length": Key(
        Tokens | None,
        "With max_response_length, the tokens that a sequence may have. null: 16,384, or its share of a short context.",
    ),
    "max_response_length": Key(
        Tokens | None,
        "With max_prompt_length, the tokens that a sequence may have. null: 8,192, or its share of a short context.",
    ),
    "overlong": Key(
        Literal["drop", "truncate", "error"], "What happens to a longer sequence. The plan counts what happened."
    ),
    "bad_rows": Key(
        Literal["error", "drop"], "What happens to rows without a trained turn, or that the chat template refuses."
    ),
    "default_train_role": Key(
        Role | None,
        "The side whose turns are trained, for all sources that nothing names; null makes them an error.",
    ),
    "cache_dir": Key(
        str | None,
        "Token ids of the corpus, which you may delete between runs; null is `sft_cache` beside the run folder.",
    ),
    "train_batch_size": Key(
        Count, "Rows of an optimizer step, over all ranks. A sequence of packed documents counts as a row."
    ),
    "max_token_len_per_gpu": Key(
        Tokens | None,
        "Tokens of a micro-batch; sequences are packed up to this. null (on a CPU): what fits into the free memory, at "
        "most 65,536.",
    ),
    "num_workers": Key(FromZero, "Worker processes that read and pack sequences."),
    "apply_chat_template_kwargs": Key(Open, "Arguments of the model's chat template."),
    "seed": Key(Seed, "Seed of the order of the rows."),
    "pad_mode": Key(Literal["no_padding"]),
}
_TRAINER: Keys = {
    **TRAINER,
    "save_freq": Key(Often, "Save a checkpoint every so many steps or `after_each_epoch`, and at the end."),
    "test_freq": Key(Often, "Compute the validation loss, by source, every so many steps or `after_each_epoch`."),
    "seed": Key(Seed, "Seed of new weights (LoRA) and of dropout. data.seed orders the rows."),
    "max_ckpt_to_keep": Key(Count | None, "Older checkpoints than this many are removed; null keeps all."),
    "rl_test_freq": Key(FromZero, "Evaluate on SOUL every so many steps; 0 never, and no inference engine is started."),
    "rl_test_files": Key(str | None, "Files of task rows, or names of evaluation sets, space-separated."),
    "rl_test_limit": Key(Count, "Rows of each set in that evaluation."),
    "rl_test_arguments": Key(
        list[Any], 'Arguments of `soul evaluate local`: `["policy.max_output_tokens=512","--tp","2"]`.'
    ),
    "rl_test_vllm_arguments": Key(
        list[Any],
        "Arguments of the vLLM server of that evaluation. The training's state waits on the host meanwhile.",
    ),
}
SFT_KEYS: Keys = {
    **below("data", _DATA),
    **below("trainer", _TRAINER),
    "run.dir": Key(Text, "The run folder: checkpoints and metrics."),
    "run.save_on_signal_s": Key(
        NotNegative, "After SIGTERM or Ctrl-C, seconds in which the current step may end and be saved; 0 drops it."
    ),
    **below("checkpoint", CHECKPOINT),
    **below("model", MODEL),
    "model.chat_template": Key(
        str | None,
        "The chat template of tokenising, training and serving: a file, or `qwen3`; null is the model's own.",
    ),
    **below("optim", OPTIMIZER),
    **below("engine", ENGINE),
    **of_model("memory", MemorySettings),
    "dry_run": Key(bool),
}
_ROWS = "the layouts of rows that docs/sft_data.md lists: sft/corpus/row_encoder.py reads them"
# Keys of verl's SFT config that nothing reads here -> what to use in their place.
INSTEAD = {
    "data.max_length": "data.max_prompt_length and data.max_response_length, whose sum is the limit",
    "data.truncation": "data.overlong",
    "data.train_role": "a column train_role, or data.default_train_role",
    "data.enable_thinking_default": "data.apply_chat_template_kwargs.enable_thinking",
    "data.messages_key": _ROWS,
    "data.tools_key": _ROWS,
    "data.custom_cls": _ROWS,
    "data.use_dynamic_bsz": "data.max_token_len_per_gpu: micro-batches are packed by tokens",
    "data.micro_batch_size_per_gpu": "data.max_token_len_per_gpu: micro-batches are packed by tokens",
    "data.train_max_samples": "a ratio of the files: TRAIN_FILES=chat.parquet:0.5 takes half of the rows per epoch",
    "data.val_max_samples": "a ratio of the files in VAL_FILES",
    "trainer.default_hdfs_dir": "trainer.default_local_dir",
    "model.custom_chat_template": "model.chat_template",
}
TRAIN_SFT = Program("train_sft.py", CONFIG_DIR, "sft", SFT_KEYS, INSTEAD)


class SftRun(Run):
    """A supervised training."""

    @property
    def longest(self) -> int:
        """Tokens of the longest sequence that the limits of `data` allow."""
        return int(self.data.max_prompt_length + self.data.max_response_length)


def check_config(config: DictConfig) -> None:
    """Check the values of all keys."""
    check_types(config, SFT_KEYS)
    run = SftRun(config)
    check_rules(sft_rules(run), run)


def sft_rules(run: SftRun) -> Iterator[Rule]:
    """All rules of supervised training."""
    data, trainer = run.data, run.trainer
    yield from trainer_rules(run)
    yield from model_rules(run, "model", "optim", "engine", "checkpoint")
    yield from chosen_on_a_cpu(run, ["data.max_token_len_per_gpu", "model.enable_gradient_checkpointing"])
    yield (
        "data.train_batch_size",
        data.train_batch_size % run.devices,
        f"cannot be divided evenly among {run.devices} devices. Use a multiple.",
    )
    yield (
        "data.max_token_len_per_gpu",
        (data.max_token_len_per_gpu or run.longest) < run.longest,
        f"is less than one sequence may have ({run.longest} tokens). Raise it, or lower data.max_prompt_length or "
        "data.max_response_length.",
    )
    yield (
        "trainer.rl_test_freq",
        trainer.rl_test_freq and not trainer.rl_test_files,
        "asks for a generative test: name its files with trainer.rl_test_files.",
    )
    yield (
        "trainer.rl_test_freq",
        trainer.rl_test_freq and run.config.checkpoint.save_lora_only,
        "evaluates a checkpoint as a model, and with checkpoint.save_lora_only=true it is none. Use one of the two.",
    )
