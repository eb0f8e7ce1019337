"""Live progress of an evaluation: each set's count, running score and failures, and the cost so far.

On a terminal a live table, elsewhere a plain line now and then.
"""

from __future__ import annotations

import logging
import time
from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from agents.evaluate.schedule import Schedule

PLAIN_EVERY_S = 15.0


class _OnConsole(logging.Handler):
    """Prints warnings above the live table, such as what calls wait for (agents/judge/waiting.py)."""

    def __init__(self, console: Console) -> None:
        super().__init__(logging.WARNING)
        self.console = console

    def emit(self, record: logging.LogRecord) -> None:
        # With `soft_wrap` rich breaks no line: a warning stays one line in a log file.
        self.console.print(Text(self.format(record)), soft_wrap=True)


class Progress:
    """Counts samples as they come in; a context manager around the run.

    Args:
        wanted: set -> samples of the whole run.
        known: samples that an earlier start took already.
    """

    def __init__(self, console: Console, wanted: Mapping[str, int], known: list[dict[str, Any]]) -> None:
        self.console = console
        self.wanted = dict(wanted)
        self.done: Counter[str] = Counter()
        self.failed: Counter[str] = Counter()
        self.rewards: defaultdict[str, float] = defaultdict(float)
        self.cost_usd = 0.0
        self._fresh = 0
        self._schedule: Schedule | None = None
        self._warnings = _OnConsole(console)
        self._start = self._told = time.monotonic()
        self._live = (
            Live(console=console, refresh_per_second=4, get_renderable=self.table) if console.is_terminal else None
        )
        for sample in known:
            self._count(sample)

    def follow(self, schedule: Schedule) -> None:
        """Show the time left that this schedule estimates."""
        self._schedule = schedule

    def __enter__(self) -> Progress:
        logging.getLogger("agents").addHandler(self._warnings)
        if self._live:
            self._live.start()
        return self

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        logging.getLogger("agents").removeHandler(self._warnings)
        if self._live:
            self._live.stop()
        elif error is not KeyboardInterrupt:  # Ctrl-C prints its own line (ctrl_c.py)
            self.console.print(self.line())

    def add(self, sample: dict[str, Any]) -> None:
        """A sample has been taken."""
        self._count(sample)
        self._fresh += 1
        if self._live is None and time.monotonic() - self._told > PLAIN_EVERY_S:
            self._told = time.monotonic()
            self.console.print(self.line())

    def _count(self, sample: dict[str, Any]) -> None:
        name, draft = sample["set"], sample["draft"]
        self.done[name] += 1
        self.failed[name] += not draft["valid"]
        self.rewards[name] += draft["reward"] or 0.0
        self.cost_usd += sum(usage["cost_usd"] for usage in sample["usage"].values())

    def score(self, name: str) -> float | None:
        """The mean reward of the valid samples so far."""
        valid = self.done[name] - self.failed[name]
        return self.rewards[name] / valid if valid else None

    def rate(self) -> float:
        """Samples a second, of this start."""
        return self._fresh / max(1e-9, time.monotonic() - self._start)

    def line(self) -> str:
        """All in one line."""
        total, wanted = sum(self.done.values()), sum(self.wanted.values())
        seconds = self._schedule.seconds_left() if self._schedule and total < wanted else None
        left = f", {duration(seconds)} left" if seconds is not None else ""
        cost = f", ${self.cost_usd:,.3f}" if self.cost_usd else ""
        return f"{total:,} of {wanted:,} samples, {self.rate():,.1f}/s{left}, {sum(self.failed.values())} failed{cost}"

    def table(self) -> Table:
        """The live view."""
        made = Table(title=self.line(), title_justify="left")
        for column in ("set", "samples", "score so far", "failed"):
            made.add_column(column, justify="left" if column == "set" else "right")
        for name, wanted in self.wanted.items():
            score = self.score(name)
            shown = "" if score is None else f"{100 * score:.1f}"
            made.add_row(name, f"{self.done[name]}/{wanted}", shown, str(self.failed[name] or ""))
        return made


def duration(seconds: float) -> str:
    """A time for people: "50 s", "12 min", "3.5 h"."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
