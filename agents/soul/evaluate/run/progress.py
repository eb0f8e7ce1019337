"""Live progress of an evaluation: running and failed sets with their scores, the time left, and the cost so far.

A live table on a terminal; elsewhere a plain line every ten seconds.
"""

from __future__ import annotations

import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from soul.record import SessionRecord

PLAIN_EVERY_S = 10.0


class Progress:
    """Counts finished samples; a context manager around the run.

    Args:
        wanted: set -> number of samples of the whole run.
        calls: set -> successive calls of a sample, as its task declares them; the time left follows them.
        known: samples that an earlier start finished.
        cost_usd: the cost of the run without its samples.
    """

    def __init__(
        self,
        console: Console,
        wanted: Mapping[str, int],
        calls: Mapping[str, float],
        known: Iterable[SessionRecord] = (),
        cost_usd: float = 0.0,
    ) -> None:
        self.console, self.wanted, self.calls, self.cost_usd = console, wanted, calls, cost_usd
        self.done, self.failed, self.causes = Counter[str](), Counter[str](), Counter[str]()
        self.rewards: defaultdict[str, float] = defaultdict(float)
        self._start = self._printed_at = time.monotonic()
        for sample in known:
            self._count(sample)
        self._known = Counter(self.done)
        self._live: Live | None = None
        if console.is_terminal:  # stderr stays where it goes, unless that is this terminal
            redirects = sys.stderr.isatty()
            self._live = Live(
                console=console, refresh_per_second=4, get_renderable=self.view, redirect_stderr=redirects
            )

    def __enter__(self) -> Progress:
        if self._live:
            self._live.start()
        return self

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        if self._live:
            self._live.stop()
        elif error is not KeyboardInterrupt:  # Ctrl-C prints its own line (run_folder.py)
            self.console.print(self.line())

    def add(self, sample: SessionRecord) -> None:
        """Count a finished sample."""
        self._count(sample)
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
        """The mean reward of a set's valid samples so far; None without any."""
        valid = self.done[name] - self.failed[name]
        return self.rewards[name] / valid if valid else None

    def seconds_left(self) -> float | None:
        """The time so far, times the calls that are left over those that were made; None before the first sample."""
        made = sum((self.done[name] - self._known[name]) * calls for name, calls in self.calls.items())
        left = sum((self.wanted[name] - self.done[name]) * calls for name, calls in self.calls.items())
        return (time.monotonic() - self._start) * left / made if made else None

    def line(self) -> str:
        """The progress in one line."""
        total, wanted, fresh = self.done.total(), sum(self.wanted.values()), self.done.total() - self._known.total()
        left = ""
        if total < wanted:
            seconds = self.seconds_left()
            left = ", time left unknown" if seconds is None else f", {duration(seconds)} left"
        cost = f", ${self.cost_usd:,.3f}" if self.cost_usd else ""
        causes = ", ".join(f"{cause} {count:,}" for cause, count in self.causes.most_common())
        failed = f"{self.failed.total():,} failed" + (f" ({causes})" if causes else "")
        rate = fresh / max(1e-9, time.monotonic() - self._start)
        return f"{total:,} of {wanted:,} samples, {rate:,.1f}/s{left}, {failed}{cost}"

    def view(self) -> Group:
        """The live view: `line`, and the failed and running sets. rich cuts off what the terminal has no room for."""
        running = [name for name, wanted in self.wanted.items() if 0 < self.done[name] < wanted]
        failed = [name for name in self.wanted if self.failed[name]]
        finished = sum(self.done[name] >= wanted for name, wanted in self.wanted.items())
        waiting = sum(not self.done[name] for name in self.wanted)
        counts = f"Of {len(self.wanted)} sets {finished} are finished, {len(running)} running, {waiting} waiting."
        above = [self.line(), counts, "Scores so far lean to short episodes, which end first."]
        table = Table()
        for column in ("set", "samples", "score so far", "failed"):
            table.add_column(column, justify="left" if column == "set" else "right", no_wrap=True)
        for name in dict.fromkeys([*failed, *running]):
            score = self.score(name)
            text = "" if score is None else f"{100 * score:.1f}"
            table.add_row(Text(name), f"{self.done[name]:,}/{self.wanted[name]:,}", text, str(self.failed[name] or ""))
        return Group(*map(Text, above), *([table] if table.rows else []))


def duration(seconds: float) -> str:
    """A readable duration: "50 s", "12 min", "3.5 h"."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
