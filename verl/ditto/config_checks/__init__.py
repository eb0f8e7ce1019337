"""The checks of the composed config, before any row is read or engine started.

`value_types.py` checks the type of every value, with the ranges of `numbers.py`; `keys.py` says which code reads each
key; `overrides.py` refuses an override of a key that no code reads, with the
reason in `fixed_keys.py`; `value_rules.py` is the table of values that cannot work; `resume.py` looks into the
checkpoint that the run would resume from; `with_data.py` checks what needs the number of rows or the model. Each
mistake is a BadConfig: one paragraph with key, value, reason and remedy.
"""

from __future__ import annotations

from omegaconf import DictConfig, OmegaConf

from ditto.config_checks.numbers import RL_NUMBERS
from ditto.config_checks.overrides import refuse_unread
from ditto.config_checks.resume import check_resume
from ditto.config_checks.value_rules import check_values
from ditto.config_checks.value_types import check_types
from ditto.config_checks.with_data import check_model_length, check_overlap, training_steps
from ditto.launching.compose import default_config
from ditto.settings import Settings

__all__ = ["check_config", "check_every_type", "check_model_length", "check_overlap", "training_steps"]


def check_every_type(config: DictConfig) -> None:
    """Check that every value is of its key's type and in its range, before any other code reads one.

    Raises:
        BadConfig: for the first that is not.
    """
    check_types(
        config, default_config("cpu" if OmegaConf.select(config, "trainer.device") == "cpu" else "gpu"), RL_NUMBERS
    )


def check_config(config: DictConfig, settings: Settings) -> None:
    """Check everything of a config that needs no row, model or judge.

    Raises:
        BadConfig: for the first mistake.
    """
    check_values(config, settings)
    refuse_unread(config)
    check_resume(config)
