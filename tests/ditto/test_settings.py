"""Our part of the config: a wrong key or value is named, with its section, before anything starts."""

from typing import Any

import pytest
from omegaconf import DictConfig, OmegaConf

from ditto.launching.compose import load_config
from ditto.objectives import UnknownObjective
from ditto.objectives.options import ObjectiveOptions
from ditto.settings import BadConfig, Settings


def config(**changes: Any) -> DictConfig:
    """The least that `Settings.from_config` reads; changes by dotted key, with __ for the dot."""
    made = OmegaConf.create(
        {
            "algorithm": {"objective": "grpo", "feedback_coef": 1.0, "refined_old_logp": "recompute"},
            "refine": {},
            "judge": {},
            "run": {"dir": "outputs/x"},
            "data": {"mixture": {}},
        }
    )
    for key, value in changes.items():
        OmegaConf.update(made, key.replace("__", "."), value)
    return made


def test_defaults() -> None:
    settings = Settings.from_config(config())
    assert settings.objective.name == "grpo"
    assert settings.refine.when == "always"
    assert settings.gateway.policy.max_failure_rate == 0.3
    assert str(settings.run_dir) == "outputs/x"
    assert settings.options == ObjectiveOptions()


@pytest.mark.parametrize("name", ["trainer", "run_rl"])
def test_the_configs_we_ship_are_valid(name: str) -> None:
    settings = Settings.from_config(load_config(["--config-name", name, "data.train_files=[x]", "data.val_files=[x]"]))
    assert settings.objective.name == "grpo"
    assert settings.options.refined_old_logp == "recompute"


@pytest.mark.parametrize(("version", "name"), [("default", "grpo"), ("copy", "ditto"), (None, "grpo")])
def test_agent_version_is_an_alias(version: str | None, name: str) -> None:
    assert Settings.from_config(config(algorithm__agent_version=version)).objective.name == name


def test_agent_version_wins_over_objective() -> None:
    assert (
        Settings.from_config(config(algorithm__objective="ditto", algorithm__agent_version="default")).objective.name
        == "grpo"
    )


def test_an_unknown_agent_version_is_named_with_the_known_ones() -> None:
    with pytest.raises(BadConfig, match="algorithm.agent_version='paste'.*default or copy"):
        Settings.from_config(config(algorithm__agent_version="paste"))


def test_an_unknown_objective_is_named() -> None:
    with pytest.raises(UnknownObjective, match="algorithm.objective='dito'"):
        Settings.from_config(config(algorithm__objective="dito"))


@pytest.mark.parametrize("coefficient", [0.0, 0.5, 2])
def test_part_weights_of_ditto(coefficient: float) -> None:
    settings = Settings.from_config(config(algorithm__objective="ditto", algorithm__feedback_coef=coefficient))
    weights = {part.name: settings.options.weight(part) for part in settings.objective.parts}
    assert weights == {"joint": 1.0, "feedback": coefficient}


@pytest.mark.parametrize(
    ("key", "value", "named"),
    [
        ("judge__modle", "gpt-5", "judge.modle"),
        ("judge__max_failure_rate", 2, "judge.max_failure_rate"),
        ("judge__timeout_s", 0, "judge.timeout_s"),
        ("judge__concurrency", "many", "judge.concurrency"),
        ("refine__when", "sometimes", "refine.when"),
        ("refine__when", "below:half", "refine.when"),
        ("refine__until", 5, "refine.until"),
        ("run__phase_timeout_s", -1, "run.phase_timeout_s"),
        ("run__folder", "x", "run.folder"),
        ("algorithm__feedback_coef", -1.0, "algorithm.feedback_coef"),
        ("algorithm__feedback_coef", "much", "algorithm.feedback_coef"),
        ("algorithm__refined_old_logp", "sampled", "algorithm.refined_old_logp"),
    ],
)
def test_a_wrong_key_or_value_is_named(key: str, value: Any, named: str) -> None:
    with pytest.raises(BadConfig) as caught:
        Settings.from_config(config(**{key: value}))
    assert str(caught.value).startswith(named)


def test_the_known_keys_are_listed() -> None:
    with pytest.raises(BadConfig, match="Known keys of refine: when"):
        Settings.from_config(config(refine__until=5))


@pytest.mark.parametrize("override", ["judge.modle=gpt-5", "algorithm.feedbak_coef=1", "refine.whn=failed"])
def test_a_misspelt_override_is_named(override: str) -> None:
    with pytest.raises(BadConfig, match=override.split(".")[1].split("=")[0]):
        load_config([override])


def test_no_key_of_an_endpoint_is_in_the_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-very-secret")
    assert (
        "sk-very-secret" not in repr(Settings.from_config(config())) + Settings.from_config(config()).model_dump_json()
    )


def test_every_role_falls_back_to_the_judge() -> None:
    settings = Settings.from_config(config(judge__model="m", judge__base_url="http://x", judge__concurrency=3))
    for endpoint in settings.gateway.roles.values():
        assert (endpoint.model, endpoint.base_url, endpoint.concurrency) == ("m", "http://x", 3)
