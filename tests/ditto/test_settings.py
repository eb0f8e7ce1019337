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


def test_every_role_falls_back_to_the_judge() -> None:
    settings = Settings.from_config(config(judge__model="m", judge__base_url="http://x", judge__concurrency=3))
    for endpoint in settings.gateway.roles.values():
        assert (endpoint.model, endpoint.base_url, endpoint.concurrency) == ("m", "http://x", 3)
