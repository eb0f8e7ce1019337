"""The spending of a run, by task and role: `usage.json` and the table at the end of a run.

The file outlives the process, so a resumed run still counts what it paid before a crash.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

from rich.table import Table as RichTable

from soul.files.whole_file import write_whole
from soul.judge.call.usage import Usage, merged, total
from soul.table import Table


class Ledger:
    """Usage by task and role."""

    def __init__(self) -> None:
        self.tasks: dict[str, dict[str, Usage]] = {}

    def add(self, task: str, usage: Mapping[str, Usage]) -> None:
        """Add the usage of one session of a task, by role."""
        for role, count in usage.items():
            self.tasks.setdefault(task, {}).setdefault(role, Usage()).merge(count)

    def by_role(self) -> dict[str, Usage]:
        """Usage by role, over all tasks."""
        return merged((role, usage) for _, role, usage in self)

    def by_task(self) -> dict[str, Usage]:
        """Usage by task, over all roles."""
        return merged((task, usage) for task, _, usage in self)

    def total(self) -> Usage:
        """Usage over all tasks and roles."""
        return total(usage for _, _, usage in self)

    def __iter__(self) -> Iterator[tuple[str, str, Usage]]:
        for task, roles in self.tasks.items():
            for role, usage in roles.items():
                yield task, role, usage

    def save(self, path: Path) -> None:
        """Write the file atomically: after a crash it holds either the new content or the old."""
        value = {
            "total": numbers(self.total()),
            "tasks": {task: {role: u.to_json() for role, u in roles.items()} for task, roles in self.tasks.items()},
        }
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, json.dumps(value, indent=1))

    @classmethod
    def load(cls, path: Path) -> Ledger:
        """Read the file back; an empty ledger if there is no file."""
        ledger = cls()
        if path.exists():
            value = json.loads(path.read_text(encoding="utf-8"))
            for task, roles in value["tasks"].items():
                ledger.add(task, {role: Usage.from_json(count) for role, count in roles.items()})
        return ledger


def numbers(usage: Usage) -> dict[str, float]:
    """The counters that people watch: sums, shares, and latency percentiles in seconds."""
    counters = {
        name: value.total() if isinstance(value, Counter) else value
        for name, value in vars(usage).items()
        if name not in ("cache_hits", "cut_off", "latency")
    }
    if usage.calls:
        counters["cache_hit_rate"] = usage.cache_hits / usage.calls
    for share in (0.5, 0.95, 0.99):
        if (seconds := usage.percentile(share)) is not None:
            counters[f"latency_p{100 * share:.0f}_s"] = seconds
    return counters


def money(usage: Usage) -> str:
    """The cost for display. It is a lower bound ("at least") if the price of some calls is unknown."""
    if usage.unpriced and not usage.cost_usd:
        return "price unknown" if usage.requests else "$0.00"
    return f"{'at least ' if usage.unpriced else ''}${usage.cost_usd:,.2f}"


def table(ledger: Ledger) -> RichTable:
    """A table of what a run spent, with one row for each task and role."""
    lines = []
    for task, role, usage in [*ledger, *([("all", "all", ledger.total())] if sum(1 for _ in ledger) > 1 else [])]:
        n = numbers(usage)
        lines.append(
            [
                *(task, role, f"{usage.calls:,}", f"{n.get('cache_hit_rate', 0.0):.0%}"),
                *(f"{count:,}" for count in (usage.failures.total(), usage.prompt_tokens, usage.completion_tokens)),
                *(f"{n[key]:.2f}" if key in n else "" for key in ("latency_p50_s", "latency_p95_s")),
                money(usage),
            ]
        )
    head = ("task", "role", "calls", "cached", "failed", "tokens in", "tokens out", "p50 s", "p95 s", "cost")
    return Table(head, lines, words=frozenset({1})).rich("What the judges cost")
