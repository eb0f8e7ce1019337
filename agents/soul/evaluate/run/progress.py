"""Live progress of an evaluation: each set's count, running score and failures, and the cost so far.

A live table on a terminal, elsewhere a plain line every ten seconds. Log lines, such as those of waiting calls, appear
above the live table; without one they go to stderr (agents/soul/cli/logs.py).
"""

from __future__ import annotations

import sys
import time
from collections import Counter, defaultdict
from collections.abc import Mapping
from contextlib import ExitStack

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from soul.cli import logs
from soul.evaluate.run.schedule import Schedule
from soul.record import SessionRecord

PLAIN_EVERY_S = 10.0


class Progress:
    """Counts finished samples; a context manager around the run.

    Args:
        wanted: set -> number of samples of the whole run.
        known: samples that an earlier start finished.
        cost_usd: the cost of the run without its samples.
    """

    def __init__(
        self, console: Console, wanted: Mapping[str, int], known: list[SessionRecord], cost_usd: float = 0.0
    ) -> None:
        self.console = console
        self.wanted = dict(wanted)
        self.done: Counter[str] = Counter()
        self.failed: Counter[str] = Counter()
        self.causes: Counter[str] = Counter()  # of all failed samples
        self.rewards: defaultdict[str, float] = defaultdict(float)
        self.cost_usd = cost_usd
        self._fresh = 0
        self._schedule: Schedule | None = None
        self._open = ExitStack()
        self._start = self._printed_at = time.monotonic()
        # If stderr goes to a file, its lines stay there; rich would redirect them to the terminal.
        self._covers_stderr = console.is_terminal and sys.stderr.isatty()
        self._live = (
            Live(console=console, refresh_per_second=4, get_renderable=self.table, redirect_stderr=self._covers_stderr)
            if console.is_terminal
            else None
        )
        for sample in known:
            self._count(sample)

    def follow(self, schedule: Schedule) -> None:
        """Show this schedule's estimate of the time left."""
        self._schedule = schedule

    def __enter__(self) -> Progress:
        if self._live:
            self._open.enter_context(self._live)
        if self._covers_stderr:
            self._open.enter_context(logs.above(self._print_above))
        return self

    def _print_above(self, line: str) -> None:
        self.console.print(Text(line), soft_wrap=True)  # rich does not wrap the line, so you can copy it as one

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        self._open.close()
        if self._live is None and error is not KeyboardInterrupt:  # Ctrl-C prints its own line (run_folder.py)
            self.console.print(self.line())

    def add(self, sample: SessionRecord) -> None:
        """Count a finished sample."""
        self._count(sample)
        self._fresh += 1
        if self._live is None and time.monotonic() - self._printed_at > PLAIN_EVERY_S:
            self._printed_at = time.monotonic()
            self.console.print(self.line())

    def _count(self, sample: SessionRecord) -> None:
        name, draft = sample.set, sample.draft
        self.done[name] += 1
        self.failed[name] += not draft.valid
        if draft.failure:
            self.causes[draft.failure.cause] += 1
        self.rewards[name] += draft.reward or 0.0
        self.cost_usd += sum(usage.cost_usd for usage in sample.usage.values())

    def score(self, name: str) -> float | None:
        """The mean reward of the valid samples so far."""
        valid = self.done[name] - self.failed[name]
        return self.rewards[name] / valid if valid else None

    def rate(self) -> float:
        """Samples per second since this start."""
        return self._fresh / max(1e-9, time.monotonic() - self._start)

    def line(self) -> str:
        """The progress in one line."""
        total, wanted = sum(self.done.values()), sum(self.wanted.values())
        left = ""
        if self._schedule and total < wanted:
            seconds = self._schedule.seconds_left()
            left = ", time left unknown" if seconds is None else f", {duration(seconds)} left"
        cost = f", ${self.cost_usd:,.3f}" if self.cost_usd else ""
        causes = ", ".join(f"{cause} {count:,}" for cause, count in self.causes.most_common())
        failed = f"{sum(self.failed.values()):,} failed" + (f" ({causes})" if causes else "")
        return f"{total:,} of {wanted:,} samples, {self.rate():,.1f}/s{left}, {failed}{cost}"

    def table(self) -> Table:
        """The live view."""
        view = Table(title=self.line(), caption="Scores so far lean to short episodes, which end first.")
        view.title_justify = view.caption_justify = "left"
        for column in ("set", "samples", "score so far", "failed"):
            view.add_column(column, justify="left" if column == "set" else "right")
        for name, wanted in self.wanted.items():
            score = self.score(name)
            shown = "" if score is None else f"{100 * score:.1f}"
            view.add_row(name, f"{self.done[name]}/{wanted}", shown, str(self.failed[name] or ""))
        return view


def duration(seconds: float) -> str:
    """A readable duration: "50 s", "12 min", "3.5 h"."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
