"""Our part of the config: a wrong key or value is named, with its section, before anything starts."""

from typing import Any

import pytest
from omegaconf import DictConfig, OmegaConf

from ditto.settings import Settings


def config(**changes: Any) -> DictConfig:
    """The least that `Settings.from_config` reads; changes by dotted key, with __ for the dot."""
    made = OmegaConf.create(
        {
            "algorithm": {"objective": "grpo", "feedback_coef": 1.0},
            "refine": {},
            "judge": {},
            "run": {"dir": "outputs/x"},
            "data": {"mixture": {}},
        }
    )
    for key, value in changes.items():
        OmegaConf.update(made, key.replace("__", "."), value)
    return made


def test_no_key_of_an_endpoint_is_in_the_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-very-secret")
    assert (
        "sk-very-secret" not in repr(Settings.from_config(config())) + Settings.from_config(config()).model_dump_json()
    )
