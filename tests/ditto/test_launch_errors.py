"""Every mistake of a user ends before an engine starts, as one paragraph that says where it is and what to do.

The whole entry of `train_ppo.py` runs in this process: config, files, rows, lengths with a real tokenizer, model path
and a real HTTP judge. Nothing is trained.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from agents.testing import FakeOpenAI, Json, Unauthorized
from ditto.launch import USER_ERROR, main
from recipe.demo import tiny_model

ROOT = Path(__file__).resolve().parents[2]
ROW: dict[str, Any] = {
    "index": 0,
    "story": "1 Ava entered the cellar.\n2 The lemon is in the red_box.",
    "question": "Where is the lemon really?",
    "choices": "A. red_box, B. blue_box",
    "correct_answer": "red_box",
}


def write(path: Path, *records: dict[str, Any], data_source: str = "hitom", columns: tuple[str, ...] = ()) -> Path:
    table = {"data_source": [data_source] * len(records), "extra_info": list(records)}
    pq.write_table(pa.table({k: v for k, v in table.items() if not columns or k in columns}), path)
    return path


@pytest.fixture(scope="module")
def judge() -> Iterator[FakeOpenAI]:
    with FakeOpenAI(Json({"ready": True})) as fake:
        yield fake


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a tiny model, a good file of four rows, and one file for each way to be wrong."""
    folder = tmp_path_factory.mktemp("errors")
    tiny_model.build(folder / "model", [ROW["story"], ROW["question"], "user assistant answer"], seed=0)
    write(folder / "good.parquet", *({**ROW, "index": i} for i in range(4)))
    elsewhere = {**ROW, "story": "1 Mia entered the den.\n2 The lemon is in the red_box."}
    write(folder / "val.parquet", *({**elsewhere, "index": i} for i in range(4)))
    write(folder / "seen.parquet", elsewhere, {**ROW, "index": 1, "question": "Where was the lemon?"})
    nothing = {"data_source": pa.array([], pa.string()), "extra_info": pa.array([], pa.null())}
    pq.write_table(pa.table(nothing), folder / "empty.parquet")
    write(folder / "column.parquet", ROW, columns=("data_source",))
    write(folder / "task.parquet", ROW, data_source="hitomm")
    write(folder / "sotopia.parquet", ROW, data_source="sotopia")
    write(folder / "field.parquet", {k: v for k, v in ROW.items() if k != "question"})
    write(folder / "gold.parquet", {**ROW, "correct_answer": "green_box"})
    write(folder / "type.parquet", {**ROW, "story": ["a list"]})
    return folder


def words(world: Path, judge: FakeOpenAI, **changed: str) -> list[str]:
    """The command line of a good dry run, with some values changed."""
    values = {
        "platform": "cpu",
        "algorithm.objective": "ditto",
        "data.train_files": f"[{world / 'good.parquet'}]",
        "data.val_files": f"[{world / 'val.parquet'}]",
        "data.train_batch_size": "4",
        "data.max_prompt_length": "4096",
        "data.max_response_length": "1024",
        "actor_rollout_ref.actor.ppo_mini_batch_size": "2",
        "actor_rollout_ref.model.path": str(world / "model"),
        "judge.base_url": judge.url,
        "+dry_run": "true",
        **changed,
    }
    return [f"{key}={value}" for key, value in values.items()]


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test")


def test_a_good_dry_run_prints_the_plan(world: Path, judge: FakeOpenAI, capsys: pytest.CaptureFixture[str]) -> None:
    epochs = {"trainer.total_training_steps": "null", "trainer.total_epochs": "7"}
    assert main(words(world, judge, **epochs)) == 0
    shown = capsys.readouterr().out
    for part in ("4 train (hitom 4)", "32 sessions", "64 generations", "96 training sequences", "2 optimizer updates"):
        assert part in shown, shown
    assert "up to 32 calls" in shown and judge.url in shown
    assert re.search(r"steps +7\n", shown), shown


def test_an_overlap_that_is_allowed_stands_in_the_plan(
    world: Path, judge: FakeOpenAI, capsys: pytest.CaptureFixture[str]
) -> None:
    files = {"data.val_files": f"[{world / 'seen.parquet'}]", "data.allow_overlap": "true"}
    assert main(words(world, judge, **files, **{"trainer.total_training_steps": "null"})) == 0
    assert "good.parquet: hitom: 4 rows in 1 group" in capsys.readouterr().out


# what -> (changed values, what the message must name)
# Keys that nothing reads, and values that no rule allows, are in test_config_keys.py.
MISTAKES: dict[str, tuple[dict[str, str], list[str]]] = {
    "missing file": ({"data.train_files": "[{w}/none.parquet]"}, ["none.parquet", "no such file", "TRAIN_FILES"]),
    "no file named": ({"data.train_files": "null"}, ["data.train_files", "not set"]),
    "empty file": ({"data.val_files": "[{w}/empty.parquet]"}, ["empty.parquet", "no rows"]),
    "missing column": ({"data.train_files": "[{w}/column.parquet]"}, ["column.parquet", "'extra_info'", "missing"]),
    "unknown task": ({"data.train_files": "[{w}/task.parquet]"}, ["row 0, field data_source", "'hitomm'", "'hitom'"]),
    "another task's fields": ({"data.train_files": "[{w}/sotopia.parquet]"}, ["sotopia.parquet, row 0, field"]),
    "wrong type": ({"data.train_files": "[{w}/type.parquet]"}, ["row 0, field story", "valid string", "Mend"]),
    "missing field": ({"data.train_files": "[{w}/field.parquet]"}, ["row 0, field question: is missing"]),
    "gold not among choices": (
        {"data.train_files": "[{w}/gold.parquet]"},
        ["row 0, field correct_answer", "'green_box' is not among the choices"],
    ),
    # Another question about the story: no prompt is equal.
    "a story on both sides": (
        {"data.val_files": "[{w}/seen.parquet]"},
        [
            "good.parquet: hitom: 4 rows in 1 group",
            "1 ava entered the cellar",
            "--without-overlap",
            "allow_overlap=true",
        ],
    ),
    "over-long row": (
        {"data.max_prompt_length": "20"},
        ["good.parquet, row 0", "tokens, more than data.max_prompt_length=20", "filter_overlong_prompts"],
    ),
    "unknown objective": ({"algorithm.objective": "dito"}, ["algorithm.objective='dito'", "Did you mean ditto"]),
    "unknown agent version": ({"algorithm.agent_version": "paste"}, ["algorithm.agent_version='paste'", "copy"]),
    "unknown config key": ({"algorithm.objektive": "ditto"}, ["objektive"]),
    "unknown judge key": ({"+judge.modell": "gpt"}, ["judge.modell", "Known keys of judge"]),
    "bad gate": ({"refine.when": "sometimes"}, ["refine.when", "always, failed or below:<reward>"]),
    "batch and mini-batch": ({"data.train_batch_size": "3"}, ["data.train_batch_size=3", "ppo_mini_batch_size=2"]),
    "too few rows": ({"data.train_batch_size": "8"}, ["data.train_batch_size=8", "4 rows", "fewer than a step takes"]),
    "too few samples": ({"data.train_max_samples": "2"}, ["data.train_batch_size=4", "2 rows", "train_max_samples"]),
    "epochs that end early": (
        {"trainer.total_epochs": "3"},
        ["trainer.total_epochs=3", "would end after 3 steps", "trainer.total_training_steps=200"],
    ),
    "a key that is never read": (
        {"algorithm.filter_groups.enable": "true"},
        ["algorithm.filter_groups.enable=True", "groups without spread are kept"],
    ),
    "more positions than the model has": (
        {"actor_rollout_ref.rollout.max_model_len": "10000000"},
        ["max_model_len=10000000", "positions", "max_position_embeddings"],
    ),
    "unknown model path": ({"actor_rollout_ref.model.path": "{w}/no-model"}, ["no-model", "ACTOR_MODEL_PATH"]),
    "not a model": ({"actor_rollout_ref.model.path": "{w}"}, ["an existing folder", "config.json"]),
    "unreachable judge": (
        {"judge.base_url": "http://127.0.0.1:9/v1"},
        ["http://127.0.0.1:9/v1", "connection", "OPENAI_BASE_URL"],
    ),
    "verl's own trainer": ({"trainer.v1.trainer_mode": "sync"}, ["trainer.v1.trainer_mode=sync", "ditto_sync"]),
    "bypass mode": ({"algorithm.rollout_correction.bypass_mode": "true"}, ["bypass_mode", "refined_old_logp"]),
    "aggregation": ({"actor_rollout_ref.actor.loss_agg_mode": "mean"}, ["loss_agg_mode=mean", "token-mean"]),
    "head": ({"actor_rollout_ref.model.external_lib": "null"}, ["external_lib=None", "ditto.model.install"]),
    "GPUs too small": (
        {"platform": "gpu", "memory.gpu_gib": "5"},
        ["does not fit on 8 GPUs of 5.0 GiB", "the weight sync phase needs", "This fits: actor_rollout_ref.rollout."],
    ),
    "context too short": ({"actor_rollout_ref.rollout.max_model_len": "100"}, ["max_model_len=100", "Raise it"]),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_one_clear_paragraph(
    mistake: str, world: Path, judge: FakeOpenAI, capsys: pytest.CaptureFixture[str]
) -> None:
    changed, named = MISTAKES[mistake]
    code = main(words(world, judge, **{k: v.format(w=world) for k, v in changed.items()}))
    captured = capsys.readouterr()
    assert code == USER_ERROR, captured.out
    paragraph = captured.err.strip().splitlines()
    assert len(paragraph) == 1 and "Traceback" not in captured.err, captured.err
    for part in named:
        assert part in paragraph[0], paragraph[0]


def test_a_bad_key_is_named_by_its_variable(world: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with FakeOpenAI(Unauthorized()) as judge:
        assert main(words(world, judge)) == USER_ERROR
    shown = capsys.readouterr().err
    assert "auth" in shown and "OPENAI_API_KEY" in shown and "sk-test" not in shown


def test_a_missing_key_is_named_by_its_variable(
    world: Path, judge: FakeOpenAI, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY")
    assert main(words(world, judge)) == USER_ERROR
    assert "OPENAI_API_KEY is not set" in capsys.readouterr().err


def test_a_ray_cluster_that_does_not_answer_is_named(
    world: Path, judge: FakeOpenAI, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ray itself tries for minutes. (Nothing listens on port 1.)"""
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")
    assert main(words(world, judge, **{"+dry_run": "false"})) == USER_ERROR
    shown = capsys.readouterr().err
    assert "BadCluster: " in shown and "there is no Ray cluster at " in shown and "RAY_ADDRESS=local" in shown


@pytest.mark.parametrize("absolute", [True, False])
def test_what_a_run_brings_along_lies_in_its_output_folder(tmp_path: Path, absolute: bool) -> None:
    """Also that of a run which an unknown task ends."""
    known = {name: value for name, value in os.environ.items() if name not in ("HF_HOME", "WANDB_DIR")}
    environment = {**known, "OUTPUT_DIR": str(tmp_path / "out") if absolute else "out"}
    launcher = str(ROOT / "recipe" / "ditto" / "run_rl.sh")
    done = subprocess.run(["bash", launcher, "hitomm"], cwd=tmp_path, env=environment, capture_output=True)
    assert done.returncode == USER_ERROR
    assert sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")) == ["out", "out/wandb"]


@pytest.mark.parametrize("task, named", [("hitomm", "Did you mean 'hitom'"), ("sim_arena_maths", "sim_arena_math")])
def test_the_launcher_knows_its_tasks(task: str, named: str) -> None:
    done = subprocess.run(["bash", "recipe/ditto/run_rl.sh", task], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == USER_ERROR
    assert named in done.stderr and "Traceback" not in done.stderr
