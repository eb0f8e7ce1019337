"""A mixture of one exact, one judged, one multi-turn and one multi-agent task, and of a task of one's own, in one run.

Every launch in a run of its own: `python -m tests.e2e.every_task` (about two minutes each).
"""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest

from agents import examples, tasks
from agents.examples.endpoint import answer
from agents.testing import FakeOpenAI
from tests.agents.add_a_task import install
from tests.e2e import every_task

pytestmark = pytest.mark.slow

NAMES = ("hitom", "humanual_book", "sotopia", "coser", "tips")
SOURCES = {"hitom", "humanual-book", "sotopia", "coser", "tips"}


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> every_task.Outcome:
    """The run; two prompts of every task a step, more of hitom."""
    folder = tmp_path_factory.mktemp("mixture")
    package = install(tmp_path_factory.mktemp("tips"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [str(package), os.environ.get("PYTHONPATH")])))
        patch.syspath_prepend(str(package))
        for known in (tasks._external, examples._external, examples.names):
            known.cache_clear()
        every_task.prepare(folder, steps=120, more=["tips"])
        with FakeOpenAI(answer) as judge:
            overrides = ["data.train_batch_size=10", "data.mixture.rows_per_task=4", "+data.mixture.weights.hitom=2.0"]
            return every_task.train(folder, ",".join(NAMES), judge.url, limit_s=540, overrides=overrides)


def test_two_steps_of_every_task(outcome: every_task.Outcome) -> None:
    assert outcome.problems() == []
    assert set(outcome.metrics) >= {1, 2}


def test_the_mixture_is_what_was_asked_for(outcome: every_task.Outcome) -> None:
    """4 rows of each and 8 of hitom are 24: two steps of 10 prompts are most of an epoch, and no row comes twice."""
    rows = Counter((trace["task"], trace["row"]) for trace in outcome.sessions)
    assert set(rows.values()) == {2}, "each prompt has two sessions"
    assert {task for task, _ in rows} == SOURCES and len(rows) == 20
    assert sum(task == "hitom" for task, _ in rows) > 4
    assert Counter(trace["task"] for trace in outcome.validation) == dict.fromkeys(SOURCES, 2)


def test_every_task_has_its_own_numbers(outcome: every_task.Outcome) -> None:
    for step, numbers in outcome.metrics.items():
        for task in SOURCES & {trace["task"] for trace in outcome.sessions if trace["step"] == step}:
            mine = [t for t in outcome.sessions if t["task"] == task and t["step"] == step and t["draft"]["valid"]]
            expected = sum(trace["draft"]["reward"] for trace in mine) / len(mine)
            assert numbers[f"ditto/task/{task}/reward_draft"] == pytest.approx(expected)
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
