"""Check the composed config before any row is read or engine started.

    value_types.py      every value has the type of its key
    numbers.py          the ranges of numbers
    keys.py             which code reads each key
    fixed_keys.py       keys that must keep their default, with the reason
    overrides.py        refuses overrides of keys that no code reads
    defaults.py         options that keep their default unless another one gives them a meaning
    value_rules.py      values that cannot work, or not together
    mode_rules.py       the trainer's modes, and the options of each
    objective_rules.py  the options of objectives, and what each objective needs
    rules.py            what a rule is; the rules that RL and supervised training share
    policy_losses.py    which policy losses of verl are correct here, and which options they read
    resume.py           the checkpoint that the run resumes from
    resume_changes.py   what a resumed run may change
    with_data.py        checks that need the rows or the model

Each mistake is a BadConfig: one paragraph with key, value, reason and what to do.
"""

from __future__ import annotations

from omegaconf import DictConfig, OmegaConf

from ditto.config_checks.numbers import RL_NUMBERS
from ditto.config_checks.overrides import refuse_unread
from ditto.config_checks.resume import check_resume
from ditto.config_checks.value_rules import check_values
from ditto.config_checks.value_types import check_types
from ditto.config_checks.with_data import check_fp8, check_model_length, check_overlap, training_steps
from ditto.launching.compose import default_config
from ditto.run.checkpoint import ResumeChoice
from ditto.settings import Settings

__all__ = ["check_config", "check_every_type", "check_fp8", "check_model_length", "check_overlap", "training_steps"]


def check_every_type(config: DictConfig) -> None:
    """Check that every value has its key's type and is in its range, before any other code reads it."""
    platform = "gpu" if OmegaConf.select(config, "trainer.device") == "cuda" else "cpu"  # whose values may be null
    check_types(config, default_config(platform), RL_NUMBERS)


def check_config(config: DictConfig, settings: Settings) -> ResumeChoice:
    """Check everything that needs no rows, model or judge.

    Returns:
        The checkpoint that the run resumes from.
    """
    check_values(config, settings)
    refuse_unread(config)
    return check_resume(config)
