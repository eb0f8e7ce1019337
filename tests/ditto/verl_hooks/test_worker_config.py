"""The config that workers get says the same in every process: whatever its environment and its working directory.

Promise under test: the launcher's environment alone decides who is asked; no key is in the config, and a relative path
means a folder of the launcher's working directory everywhere.
"""

import copy
import json
from pathlib import Path

import pytest
from omegaconf import DictConfig, OmegaConf

from ditto.judging import actor as judge_actor
from ditto.launching.compose import load_config
from ditto.settings import Settings
from ditto.verl_hooks import worker_config
from soul.errors import MissingKey

KEY = "sk-sentinel-0123456789abcdef"
LAUNCHER = {
    "OPENAI_BASE_URL": "http://launcher.invalid/v1",
    "JUDGE_MODEL_NAME": "launchers-judge",
    "JUDGE_MODEL_REASONING": "low",
    "OPENAI_API_KEY": KEY,
    "THERE_KEY": KEY,
}
WORKER = {name: f"http://{name.lower()}-of-a-node.invalid/v1" for name in LAUNCHER}
ROLES = [
    "+judge.by_task.coser.model=another",
    "judge.jury=[a,{model: b, base_url: 'http://b.invalid/v1'}]",
    "judge.cache_dir=cache",
    "partner.base_url=http://there.invalid/v1",
    "partner.api_key_env=THERE_KEY",
    "environment.model=narrator",
]


@pytest.fixture(scope="module")
def composed() -> DictConfig:
    overrides = ["data.train_files=[train.parquet,s3://b/x]", "data.val_files=train.parquet", "run.dir=out/run", *ROLES]
    config = load_config([*overrides, "actor_rollout_ref.model.path=model"])
    config.actor_rollout_ref.model.tokenizer_path = "Qwen/Qwen3-8B"
    config.actor_rollout_ref.rollout.agent.agent_loop_config_path = "loops.yaml"
    return config


@pytest.fixture
def launched(composed: DictConfig, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> DictConfig:
    """A config that was resolved in the launcher's environment and folder; this process is now somewhere else."""
    for name, value in LAUNCHER.items():
        monkeypatch.setenv(name, value)
    here = tmp_path / "launcher"
    (here / "model").mkdir(parents=True)
    (here / "train.parquet").touch()
    (here / "loops.yaml").touch()
    monkeypatch.chdir(here)
    config = copy.deepcopy(composed)
    worker_config.resolve(config)
    for name, value in WORKER.items():
        monkeypatch.setenv(name, value)
    (tmp_path / "worker").mkdir()
    monkeypatch.chdir(tmp_path / "worker")
    return config


def test_no_worker_asks_its_own_environment(launched: DictConfig) -> None:
    gateway = Settings.from_config(launched).gateway
    judge = gateway.judge
    assert (judge.model, judge.url, judge.reasoning_effort) == ("launchers-judge", "http://launcher.invalid/v1", "low")
    assert (gateway.by_task["coser"].model, gateway.by_task["coser"].url) == ("another", judge.url)
    assert [(e.model, e.url) for e in gateway.jury] == [("a", judge.url), ("b", "http://b.invalid/v1")]
    assert gateway.roles["partner"].api_key_env == "THERE_KEY"
    assert not [e for e in gateway.endpoints if e.base_url is None], "Endpoint.url would read OPENAI_BASE_URL"
    assert not {"judge", "feedback", "partner", "environment"} & set(launched), "two places that say who is asked"


def test_no_key_is_in_the_config(launched: DictConfig) -> None:
    assert KEY not in OmegaConf.to_yaml(launched) and KEY not in json.dumps(OmegaConf.to_container(launched))


def test_the_judge_actor_has_the_launchers_keys_or_none(launched: DictConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    gateway = Settings.from_config(launched).gateway
    judge_actor.replace_variables(gateway, {"THERE_KEY": KEY})
    assert gateway.roles["partner"].key() == KEY
    with pytest.raises(MissingKey, match=r"launchers-judge.*OPENAI_API_KEY is not set"):
        gateway.judge.key()


def test_relative_paths_are_the_launchers(launched: DictConfig, tmp_path: Path) -> None:
    here = tmp_path / "launcher"
    rollout = launched.actor_rollout_ref.rollout
    assert Settings.from_config(launched).run_dir == here / "out/run" == Path(launched.trainer.default_local_dir)
    assert Settings.from_config(launched).gateway.policy.cache_dir == str(here / "cache")
    assert launched.data.train_files == [str(here / "train.parquet"), "s3://b/x"]
    assert launched.data.val_files == [str(here / "train.parquet")]
    assert launched.actor_rollout_ref.model.path == str(here / "model")
    assert launched.actor_rollout_ref.model.tokenizer_path == "Qwen/Qwen3-8B"
    assert launched.data.custom_cls.path == "pkg://ditto.rows.dataset"
    assert rollout.agent.agent_loop_config_path == str(here / "loops.yaml")
    assert rollout.name == "vllm" and launched.actor_rollout_ref.rollout.profiler.save_path.startswith(str(here))
