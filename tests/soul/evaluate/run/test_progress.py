"""What is seen of a run under way: counts, the time that is left, and what calls wait for, once and in whole lines."""

import io
import logging
import re
import sys

import pytest
from rich.console import Console

from soul.cli import logs
from soul.evaluate.run.progress import Progress
from tests.soul.evaluate.finished_samples import numbered

WAITS = (
    "500 calls wait for gpt-5.4 at https://api.openai.com/v1: at most 64 requests at a time (concurrency), " + "x" * 60
)


class Left:
    def __init__(self, seconds):
        self.seconds = seconds

    def seconds_left(self):
        return self.seconds


def shown(terminal=False, known=(), **left):
    """A run of two samples, and a warning between them."""
    out = io.StringIO()
    console = Console(file=out, force_terminal=terminal, width=100)
    with Progress(console, {"hitom": 4}, list(known)) as progress:
        if left:
            progress.follow(Left(left["left"]))
        one, two = numbered([1.0, None])
        progress.add(one)
        with logs.to_stderr():
            logging.getLogger("soul.judge.limits").warning("%s", WAITS)
        progress.add(two)
        line = progress.line()
    return line, re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", out.getvalue())


@pytest.mark.parametrize("terminal, stderr_is_one", [(False, False), (False, True), (True, False), (True, True)])
def test_a_warning_is_one_whole_line_and_stands_there_once(terminal, stderr_is_one, capsys, monkeypatch):
    """Above the live table where that covers stderr too, else on stderr."""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: stderr_is_one)
    _, text = shown(terminal)
    out, err = capsys.readouterr()
    here, elsewhere = (text, err) if terminal and stderr_is_one else (err, text)
    (line,) = [line.strip() for line in re.split(r"[\r\n]+", here) if "calls wait" in line]
    assert line.endswith(f" WARNING soul.judge.limits: {WAITS}") and "calls wait" not in elsewhere + out


@pytest.mark.parametrize(
    "left, words",
    [
        (None, "time left unknown"),
        (0.4, "0 s left"),
        (119.0, "119 s left"),
        (840.0, "14 min left"),
        (12_600.0, "3.5 h left"),
    ],
)
def test_the_time_left_is_the_schedules(left, words):
    line, _ = shown(left=left)
    assert line.startswith("2 of 4 samples") and f", {words}, " in line
