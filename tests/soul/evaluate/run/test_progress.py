"""What is seen of a run under way: counts, the time that is left, and what calls wait for, once and in whole lines."""

import io
from types import SimpleNamespace

import pytest
from rich.console import Console

from soul.evaluate.run import progress
from soul.evaluate.run.progress import Progress
from soul.suites.soul_v1 import SETS
from tests.soul.evaluate.finished_samples import numbered


@pytest.mark.parametrize("started", [0, 3, 27])
def test_the_live_view_of_27_sets_fits_a_small_terminal(started):
    """Running and failed sets are listed as far as there is room, all others counted; the last line is the whole."""
    console = Console(file=io.StringIO(), force_terminal=True, width=80, height=24, color_system=None)
    names = list(SETS)
    under_way = Progress(console, dict.fromkeys(names, 2), dict.fromkeys(names, 1.0))
    for number, name in enumerate(names[:started]):
        for one in numbered([None, 1.0] if number == 0 else [1.0], of=name, task=SETS[name].task):
            under_way.add(one)
    console.print(under_way.view())
    text = console.file.getvalue()
    assert len(text.splitlines()) <= 23 and max(map(len, text.splitlines())) <= 80
    listed = [name for name in names if f" {name} " in text]
    assert text.splitlines()[-1].startswith(f"{under_way.done.total()} of 54 samples")
    finished, running = int(started > 0), max(0, started - 1)  # the first set is finished, and one sample of it failed
    assert f"Of 27 sets {finished} are finished, {running} running, {27 - started} waiting." in text
    assert listed == names[: len(listed)] and len(listed) == min(started, 15)
    assert (f"{started - 15} more are running or failed." in text) is (started > 15)


def test_the_time_left_follows_the_calls_that_are_left(monkeypatch):
    """Half of the samples are done, but the others make ten times as many calls; known samples took no time now."""
    now = SimpleNamespace(monotonic=lambda: now.time, time=100.0)
    monkeypatch.setattr(progress, "time", now)
    wanted, calls = {"hitom": 3, "sotopia": 2}, {"hitom": 1.0, "sotopia": 10.0}
    (known, *fresh) = numbered([1.0, 1.0, 0.0])
    under_way = progress.Progress(Console(file=io.StringIO()), wanted, calls, [known])
    assert ", time left unknown, " in under_way.line()
    now.time += 60.0
    for sample in fresh:
        under_way.add(sample)
    assert under_way.seconds_left() == 60.0 * 20 / 2
    assert under_way.line().startswith("3 of 5 samples, 0.0/s, 10 min left")
    assert [progress.duration(seconds) for seconds in (0.4, 119.0, 12_600.0)] == ["0 s", "119 s", "3.5 h"]
