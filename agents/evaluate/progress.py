"""What whoever waits for an evaluation sees: each set's count, running score, failures, and what it cost so far.

On a terminal a live table, elsewhere a plain line now and then.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.table import Table

PLAIN_EVERY_S = 15.0


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
        self._start = self._told = time.monotonic()
        self._live = (
            Live(console=console, refresh_per_second=4, get_renderable=self.table) if console.is_terminal else None
        )
        for sample in known:
            self._count(sample)

    def __enter__(self) -> Progress:
        if self._live:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live:
            self._live.stop()
        else:
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
        left = f", {(wanted - total) / self.rate():,.0f} s left" if self._fresh and total < wanted else ""
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
