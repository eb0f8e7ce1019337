"""The registry: the names users type, the 27 sets of the paper's table, and helpful words for what does not exist."""

import re

import pytest

from soul import tasks
from soul.cli.main import main
from soul.errors import BadSettings, UnknownTask
from soul.suites import soul_v1
from soul.task import Task


def test_there_are_27_sets_and_every_task_here_loads_and_keeps_the_interface():
    assert len(soul_v1.SETS) == 27
    assert {"fantom", "hitom", "paratomi"} <= set(tasks.names())
    assert tasks.names() == sorted(tasks.names())
    for name in tasks.names():
        task = tasks.load(name)
        assert isinstance(task, Task) and task is tasks.load(name)
        assert task.headline.low < task.headline.high and task.headline.source
        assert "index" in task.row_type.model_fields


def test_several_launches_are_a_mixture():
    assert [launch.task for launch in tasks.launches("sotopia, hitom,sotopia")] == ["sotopia", "hitom"]
    assert len(tasks.launches("all")) == 23
    assert len(tasks.launches("paper")) == 10 and {"coser", "userllm"} <= set(soul_v1.PAPER)
    with pytest.raises(UnknownTask, match="Did you mean 'hitom'"):
        tasks.launches("sotopia,hitm")


def test_a_task_of_the_users_own_loads_launches_and_is_listed(monkeypatch, capsys):
    class Mine:
        name = "mine"

    class Point:
        name = "mine"

        def load(self):
            return Mine

    monkeypatch.setattr(tasks, "_external", lambda: {"mine": Point()})
    tasks.load.cache_clear()
    try:
        assert "mine" in tasks.names()
        assert isinstance(tasks.load("mine"), Mine)
        assert tasks.launch("mine") == tasks.TrainingSplit("mine", "mine_rl_train", "mine_val")
        assert main(["tasks"]) == 0 and {"hitom", "mine"} <= set(capsys.readouterr().out.split())
    finally:
        tasks.load.cache_clear()


@pytest.fixture
def unconfigured():
    yield
    tasks.configure({})


def test_options_reach_the_task_and_can_be_taken_back(unconfigured):
    tasks.configure({"mirrorbench": {"judge_samples": 1}})
    assert tasks.load("mirrorbench").calls_per_episode == {"judge": 3}
    assert tasks.load("mirrorbench") is tasks.load("mirrorbench")
    tasks.configure({})
    assert tasks.load("mirrorbench").calls_per_episode == {"judge": 6}


@pytest.mark.parametrize(
    "options, said",
    [
        ({"mirrorbench": {"samples": 1}}, "tasks.mirrorbench.samples: mirrorbench has the options judge_samples"),
        ({"sotopia": {"reward": "raw"}}, "tasks.sotopia: reward='raw': use mean or weighted"),
        ({"hitom": {"anything": 1}}, "tasks.hitom.anything: hitom has the options strict_answers"),
        ({"hitom": {"strict_answers": "no"}}, "tasks.hitom: strict_answers='no': use true or false"),
        ({"humanual": {"anything": 1}}, "tasks.humanual.anything: humanual has no options"),
    ],
)
def test_an_option_that_cannot_be_is_named(options, said, unconfigured):
    with pytest.raises(BadSettings, match=re.escape(said)):
        tasks.configure(options)
    for task in options:
        tasks.load(task)  # what was refused does not stay
