"""The rollout benchmark's numbers fit together. How near the driver comes to its bound is for a quiet machine."""

import argparse
import asyncio
import re

import pytest

from benchmarks import rollout
from benchmarks.rollout import Latency, Turns, driver, lockstep, measured

EARLY = 1e-3  # a clock's grain: nothing ends sooner than this before its time


def arguments(**changes):
    given = {"sessions": 8, "concurrency": None, "policy": (0.002, 0.5), "endpoint": (0.003, 1.0)}
    return argparse.Namespace(**{**given, "seed": 0, "style": "oracle", "sdk": False, "plot": None, **changes})


@pytest.fixture(scope="module")
def runs():
    return rollout.compare(arguments())


def test_no_schedule_beats_what_it_takes_at_least(runs):
    for run in runs.values():
        assert run.wall >= run.least - EARLY > 0
        assert max(run.finished) <= run.wall and min(run.finished) > 0
    assert runs["lockstep"].least > runs["driver"].least
    assert runs["lockstep"].wall >= runs["driver"].least - EARLY


def test_both_schedules_do_the_same_work(runs):
    assert runs["driver"].calls == runs["lockstep"].calls and len(set(runs["driver"].calls)) > 1
    assert runs["driver"].rewards == runs["lockstep"].rewards
    best = [rollout.examples.load(name).task.headline.high for name in rollout.TASKS]
    assert runs["driver"].rewards == [(pytest.approx(high),) * 2 for high in best * 4]


@pytest.mark.parametrize("schedule", [driver, lockstep])
@pytest.mark.parametrize("changes", [{"concurrency": 1}, {"sdk": True}, {"style": "random", "sessions": 4}])
def test_the_critical_path_is_that_of_the_longest_chain_or_of_the_cap(monkeypatch, schedule, changes):
    lanes = []
    monkeypatch.setattr(rollout, "Lane", lambda *given, new=rollout.Lane: lanes.append(new(*given)) or lanes[-1])
    tiny = arguments(policy=(1e-4, 0.5), endpoint=(1e-4, 1.0), **changes)
    run = measured(schedule, tiny)
    draws = {
        lane.number: [
            [lane.latencies[kind].draw(0, lane.number, call) for kind in lane.latencies] for call in range(99)
        ]
        for lane in lanes
    }
    for lane in lanes:  # every call's latency is one of the two that belong to its number
        chain = sum(lane.seconds.values())
        low, high = (sum(pick(draws[lane.number][call]) for call in range(lane.calls)) for pick in (min, max))
        assert low - 1e-9 <= chain <= high + 1e-9
    longest = max(sum(lane.seconds.values()) for lane in lanes)
    capped = sum(sum(lane.endpoint_seconds.values()) for lane in lanes) / (tiny.concurrency or tiny.sessions)
    if schedule is driver:
        assert run.least == pytest.approx(max(longest, capped))
    assert run.wall >= run.least - EARLY and run.least >= max(longest, capped) - 1e-9


def test_a_latency_depends_on_seed_session_and_call_alone():
    latency = Latency(0.3, 1.0)
    assert latency.draw(0, 5, 7) == latency.draw(0, 5, 7) == Latency(0.3, 1.0).draw(0, 5, 7)
    assert len({latency.draw(*key) for key in [(0, 5, 7), (1, 5, 7), (0, 7, 5), (0, 57, 0), (0, 5, 70)]}) == 5
    draws = sorted(latency.draw(0, session, 0) for session in range(2001))
    assert draws[1000] == pytest.approx(0.3, rel=0.1) and draws[-20] > 5 * draws[1000]  # the median, and the tail


def test_nobody_is_a_turn_ahead():
    log = []

    async def party(turns, name, many):
        for number in range(many):
            await turns.next()
            for _ in range(ord(name) % 3 + number):  # some are slow
                await asyncio.sleep(0)
            log.append(number)
        turns.leave()

    async def all_of_them():
        turns = Turns(3)
        await asyncio.gather(*(party(turns, name, many) for name, many in (("a", 3), ("b", 1), ("c", 5))))

    asyncio.run(all_of_them())
    assert log == sorted(log) and len(log) == 9


@pytest.mark.slow  # real schedules, seconds each
def test_different_work_is_refused(monkeypatch):
    monkeypatch.setattr(rollout, "lockstep", driver)
    rollout.compare(arguments(sessions=2))

    async def lazy(lanes, gateway):
        return [(after, before + 1) for before, after in await driver(lanes, gateway)]

    monkeypatch.setattr(rollout, "lockstep", lazy)
    with pytest.raises(RuntimeError, match="different"):
        rollout.compare(arguments(sessions=2))


@pytest.mark.slow  # real schedules, seconds each
def test_it_prints_the_ratios_and_draws(monkeypatch, capsys, tmp_path):
    pytest.importorskip("matplotlib")
    monkeypatch.setattr(rollout.console, "width", 200)
    file = tmp_path / "rollout.png"
    rollout.main(f"--sessions 4 --policy 0.001 0.5 --endpoint 0.001 1 --plot {file}".split())
    printed = capsys.readouterr().out
    assert re.search(r"driver \d+\.\d+ of it .goal.*, lockstep \d+\.\d+; lockstep over driver \d+\.\d+", printed)
    assert len(re.findall(r"│ (?:driver|lockstep) +│", printed)) == 2
    assert file.read_bytes().startswith(b"\x89PNG")
