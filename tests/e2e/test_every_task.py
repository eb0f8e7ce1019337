"""A mixture of one exact, one judged, one multi-turn and one multi-agent task, and of a task of one's own, in one run.

After two steps its rollout engine is killed, and the watchdog ends the run with the cause.
"""

import json
import os
import time
from collections import Counter
from pathlib import Path

import pytest

from soul import examples, tasks
from soul.examples.endpoint import answer
from soul.testing import FakeOpenAI
from tests.e2e import every_task
from tests.e2e.run import processes_of
from tests.metric_names import undocumented
from tests.soul.add_a_task import install_new

pytestmark = pytest.mark.e2e

NAMES = ("hitom", "humanual_book", "sotopia", "coser", "dilemmas")
SOURCES = {"hitom", "humanual-book", "sotopia", "coser", "dilemmas"}


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> every_task.Outcome:
    """The run; an epoch is two prompts of every task, four of hitom."""
    folder = tmp_path_factory.mktemp("mixture")
    package = install_new(tmp_path_factory.mktemp("new"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [str(package), os.environ.get("PYTHONPATH")])))
        patch.syspath_prepend(str(package))
        for known in (tasks._external, examples._external, examples.names):
            known.cache_clear()
        every_task.prepare(folder, ",".join(NAMES), steps=80)
        with FakeOpenAI(answer) as judge:
            overrides = ["data.train_batch_size=6", "data.mixture.rows_per_task=2", "+data.mixture.weights.hitom=2.0"]
            overrides.append("trainer.total_training_steps=4")
            return every_task.train(folder, ",".join(NAMES), judge.url, 240, overrides, kill_the_engine_after_two_steps)


def kill_the_engine_after_two_steps(out: Path) -> None:
    metrics, deadline = out / "run" / "metrics.jsonl", time.monotonic() + 480
    while not (metrics.exists() and '"step": 2' in metrics.read_text()):
        assert time.monotonic() < deadline, (out / "log.txt").read_text(errors="replace")[-3000:]
        time.sleep(0.2)
    engines = [p for p in processes_of(out) if "EngineCore" in " ".join([p.name(), *p.cmdline()])]
    assert engines, [p.name() for p in processes_of(out)]
    engines[0].kill()


def test_two_steps_of_every_task(outcome: every_task.Outcome) -> None:
    assert [problem for problem in outcome.problems() if not problem.startswith("exit code")] == []
    assert set(outcome.metrics) == {0, 1, 2}


def test_a_dead_engine_ends_the_run_and_is_named(outcome: every_task.Outcome) -> None:
    """verl hangs here for ever: nobody answers the driver."""
    assert outcome.code not in (0, None)
    cause = json.loads((outcome.folder / "run" / "failure.json").read_text())["cause"]
    assert "rollout server 0 died" in cause, cause


def test_the_mixture_is_what_was_asked_for(outcome: every_task.Outcome) -> None:
    """2 rows of each and 4 of hitom are 12: two steps of 6 prompts are an epoch, and no row comes twice."""
    rows = Counter((trace["task"], trace["row"]) for trace in outcome.sessions)
    assert set(rows.values()) == {2}, "each prompt has two sessions"
    assert Counter(task for task, _ in rows) == {**dict.fromkeys(SOURCES, 2), "hitom": 4}
    assert Counter(trace["task"] for trace in outcome.validation) == dict.fromkeys(SOURCES, 2)


def test_every_task_has_its_own_numbers(outcome: every_task.Outcome) -> None:
    for step, numbers in outcome.metrics.items():
        for task in SOURCES & {trace["task"] for trace in outcome.sessions if trace["step"] == step}:
            mine = [t for t in outcome.sessions if t["task"] == task and t["step"] == step and t["draft"]["valid"]]
            expected = sum(trace["draft"]["reward"] for trace in mine) / len(mine)
            assert numbers[f"ditto/task/{task}/reward_draft"] == pytest.approx(expected)
        assert not undocumented(numbers)
    before = outcome.metrics[0]
    assert {task for task in SOURCES if f"val-core/{task}/reward/mean@1" in before} == SOURCES


def test_every_seat_of_a_scene_is_trained(outcome: every_task.Outcome) -> None:
    """CoSER's characters are sequences of one episode each, and Sotopia's seat has several turns."""
    scenes = [trace for trace in outcome.sessions if trace["task"] == "coser"]
    assert all(len(trace["draft"]["seats"]) >= 2 for trace in scenes)
    talks = [trace["draft"]["seats"]["policy"] for trace in outcome.sessions if trace["task"] == "sotopia"]
    assert any(sum(message["role"] == "assistant" for message in talk) > 1 for talk in talks)


def test_nothing_of_the_feedback_reaches_a_partner_or_the_base_context(outcome: every_task.Outcome) -> None:
    told = [trace for trace in outcome.sessions if trace["feedback"]]
    assert told and {trace["task"] for trace in told} == SOURCES
    for trace in told:
        for messages in trace["draft"]["seats"].values():
            assert all(trace["feedback"] not in message["content"] for message in messages)


def test_the_run_names_its_folder_after_the_mixture(outcome: every_task.Outcome) -> None:
    assert (outcome.folder / "run" / "metrics.jsonl").exists()
    assert Path(outcome.folder).name == "+".join(NAMES)
