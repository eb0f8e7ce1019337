"""run.json: what a run is, without its keys, and when it was resumed."""

import hashlib
import json
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from omegaconf import DictConfig, open_dict

from ditto.launching.compose import load_config
from ditto.run import run_json

KEY = "sk-sentinel-0815-never-in-a-file"


def task_file(path: Path, *tasks: str) -> Path:
    pq.write_table(pa.table({"data_source": list(tasks), "extra_info": [{"index": 0}] * len(tasks)}), path)
    return path


@pytest.fixture
def config(tmp_path: Path) -> DictConfig:
    """The recipe's config, for two training files and a validation file."""
    train = [task_file(tmp_path / "a.parquet", "hitom", "hitom", "coser"), task_file(tmp_path / "b.parquet", "hitom")]
    val = task_file(tmp_path / "val.parquet", "fantom")
    return load_config(
        [
            "platform=cpu",
            "algorithm.objective=rltf_sd",
            f"data.train_files=[{train[0]},{train[1]}]",
            f"data.val_files={val}",
            "data.seed=7",
            "judge.base_url=http://127.0.0.1:9/v1",
            "judge.api_key_env=MY_KEY",
            f"run.dir={tmp_path / 'run'}",
        ]
    )


def written(config: DictConfig, hosts: int = 2) -> dict[str, Any]:
    run_json.write(config, hosts)
    return dict(json.loads((Path(config.run.dir) / run_json.FILE).read_text(encoding="utf-8")))


def test_it_says_what_the_run_is(config: DictConfig, tmp_path: Path) -> None:
    card = {"source": "made up", "license": "CC0"}
    (tmp_path / "b.parquet.card.json").write_text(json.dumps(card))
    content = written(config)
    assert (content["schema_version"], content["objective"], content["task"]) == (1, "rltf_sd", "coser,hitom")
    assert (content["seed"], content["hosts"], content["resumed"]) == (7, 2, [])
    assert 0 <= time.time() - content["started"] < 60
    assert content["versions"]["torch"] == version("torch") and content["versions"]["verl"] == version("verl")
    assert content["config"]["data"]["train_batch_size"] == config.data.train_batch_size
    cards = {each["name"]: each for each in content["data_cards"]}
    assert {name: (each["split"], each["rows"]) for name, each in cards.items()} == {
        "a.parquet": ("train", 3),
        "b.parquet": ("train", 1),
        "val.parquet": ("val", 1),
    }
    assert cards["a.parquet"]["tasks"] == {"coser": 1, "hitom": 2}
    assert cards["b.parquet"]["card"] == card and cards["a.parquet"]["card"] is None
    assert cards["a.parquet"]["sha256"] == hashlib.sha256((tmp_path / "a.parquet").read_bytes()).hexdigest()


def test_it_holds_no_key_wherever_one_is_in_the_config(config: DictConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", "plain-words-as-a-key")
    with open_dict(config):
        config.trainer.notes = f"called with {KEY}, and plain-words-as-a-key"
        config.trainer.services = [{"url": "https://user:hunter22@host/v1?sig=abcdefgh", "password": "correct horse"}]
    content = written(config)
    text = json.dumps(content)
    for secret in (KEY, "plain-words", "hunter22", "abcdefgh", "correct horse"):
        assert secret not in text
    assert content["config"]["judge"]["api_key_env"] == "MY_KEY"  # a name, which a reader needs
    assert content["config"]["trainer"]["notes"] == "called with ***, and ***"


def test_a_resumed_run_keeps_when_it_started(config: DictConfig) -> None:
    first = written(config)
    config.trainer.resume_from_path = f"{config.run.dir}/global_step_40"
    config.trainer.resume_mode = "resume_path"
    config.data.seed = 8
    again = written(config)
    last = written(config, hosts=1)
    assert first["started"] == again["started"] == last["started"] and (last["hosts"], last["seed"]) == (1, 8)
    assert [each["step"] for each in last["resumed"]] == [40, 40] and last["resumed"][:1] == again["resumed"]
    config.trainer.resume_from_path = None  # it begins again at step 1
    assert written(config)["resumed"] == []
