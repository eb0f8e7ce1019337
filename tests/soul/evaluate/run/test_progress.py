"""What is seen of a run under way: counts, scores, and the time that is left."""

import io
from types import SimpleNamespace

from rich.console import Console

from soul.evaluate.run import progress
from soul.evaluate.run.progress import Progress
from tests.soul.evaluate.finished_samples import numbered


def test_the_live_view_has_the_whole_first_and_then_the_failed_and_running_sets():
    console = Console(file=io.StringIO(), width=80, color_system=None)
    wanted = {"hitom": 2, "paratomi": 2, "fantom": 2}
    under_way = Progress(console, wanted, dict.fromkeys(wanted, 1.0))
    for one in [*numbered([1.0, None]), *numbered([0.5], "paratomi")]:
        under_way.add(one)
    console.print(under_way.view())
    whole, counts, _, *table = console.file.getvalue().splitlines()
    assert whole.startswith("3 of 6 samples") and "1 failed (timeout 1)" in whole
    assert counts == "Of 3 sets 1 are finished, 1 running, 1 waiting."
    cells = [[cell.strip() for cell in row.strip("│").split("│")] for row in table if row.startswith("│")]
    assert cells == [["hitom", "2/2", "100.0", "1"], ["paratomi", "1/2", "50.0", ""]]


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
