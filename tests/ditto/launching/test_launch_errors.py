"""A dry run prints the plan; judges and clusters that cannot be used are named.

The whole entry of `train_ppo.py` runs in this process, with a real tokenizer and a real HTTP judge. The table of
mistakes is in tests/mistakes/test_training_mistakes.py.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from ditto.launch import main
from recipe.demo import tiny_model
from soul.cli.error_border import USER_ERROR
from soul.testing import FakeOpenAI, Json
from tests.mistakes.training_places import ELSEWHERE, ROW, write


@pytest.fixture(scope="module")
def judge() -> Iterator[FakeOpenAI]:
    with FakeOpenAI(Json({"ready": True})) as fake:
        yield fake


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a tiny model and good files of four rows."""
    folder = tmp_path_factory.mktemp("errors")
    tiny_model.build(folder / "model", [ROW["story"], ROW["question"], "user assistant answer"], seed=0)
    write(folder / "good.parquet", *({**ROW, "index": i} for i in range(4)))
    write(folder / "val.parquet", *({**ELSEWHERE, "index": i} for i in range(4)))
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
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test-1234567")


@pytest.mark.parametrize(("objective", "sequences"), [("ditto", 96), ("ditto_no_feedback_loss", 64)])
def test_a_good_dry_run_prints_the_plan(
    objective: str, sequences: int, world: Path, judge: FakeOpenAI, capsys: pytest.CaptureFixture[str]
) -> None:
    epochs = {"trainer.total_training_steps": "null", "trainer.total_epochs": "7"}
    assert main(words(world, judge, **epochs, **{"algorithm.objective": objective})) == 0
    shown = capsys.readouterr().out
    of_a_step = ("32 sessions", "64 generations", f"{sequences} training sequences", "2 optimizer updates")
    for part in (objective, "4 train (hitom 4)", *of_a_step):
        assert part in shown, shown
    assert "up to 32 calls" in shown and judge.url in shown
    assert re.search(r"steps +7\n", shown), shown


def test_a_ray_cluster_that_does_not_answer_is_named(
    world: Path, judge: FakeOpenAI, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ray itself tries for minutes. (Nothing listens on port 1.)"""
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")
    assert main(words(world, judge, **{"+dry_run": "false"})) == USER_ERROR
    shown = capsys.readouterr().err
    assert "BadCluster: " in shown and "there is no Ray cluster at " in shown and "RAY_ADDRESS=local" in shown
