"""A page with rows that a training file kept and rows that it dropped, each beside its source: `FILE.report.html`.

Read it before you train: counts say how much was dropped, and only the rows say whether that was right. Rows are drawn
by seed from the whole file. The page loads nothing and runs no script, and every text in it is escaped.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from data.builder_cli import Decision
from data.training.markup import Markup, element, join
from soul.files.whole_file import write_whole
from soul.rows.data_card import DataCard
from soul.rows.overlap import ScopedKey
from soul.rows.task_files import TaskRow

SHOWN = 50  # rows that were kept, and as many that were dropped
_CHARS = 4000  # of one text
_STYLE = Markup("""
body { font: 15px/1.5 sans-serif; max-width: 1100px; margin: 24px auto; padding: 0 16px; color-scheme: light dark; }
article { border-top: 1px solid #888; padding: 12px 0; }
pre { white-space: pre-wrap; overflow-wrap: anywhere; background: #8882; padding: 8px; }
.pair { display: grid; grid-template-columns: 1fr 1fr; gap: 20px; }
""")


@dataclass
class Sample:
    """Draws `SHOWN` of the items that it is shown, each with the same chance, and keeps no others in memory."""

    rng: random.Random
    seen: int = 0
    items: list[Decision] = field(default_factory=list)

    def add(self, item: Decision) -> None:
        """Show it one more item."""
        self.seen += 1
        if len(self.items) < SHOWN:
            self.items.append(item)
        elif (place := self.rng.randrange(self.seen)) < SHOWN:
            self.items[place] = item


class Samples:
    """The rows that the page of one file shows."""

    def __init__(self, seed: int) -> None:
        self.kept, self.dropped = Sample(random.Random(f"kept:{seed}")), Sample(random.Random(f"dropped:{seed}"))

    def keep(self, row: TaskRow) -> None:
        """A row that is in the file."""
        prompt = "\n\n".join(message["content"] for message in row.task.prompt(row.row))
        self.kept.add(Decision(f"row {row.number}", _fields(row), {"prompt": prompt}, ""))

    def drop(self, row: TaskRow, shared: ScopedKey) -> None:
        """A row that shares a group with an evaluated one."""
        self.dropped.add(Decision(f"row {row.number}", _fields(row), {}, f"evaluated: {shared[1]}"))

    def replace_with(self, decisions: Iterable[Decision]) -> None:
        """Show what a builder decided about items, whose sources it knows, instead of the rows that were kept."""
        self.kept = Sample(self.kept.rng)
        for decision in decisions:
            (self.dropped if decision.reason else self.kept).add(decision)


def _fields(row: TaskRow) -> dict[str, Any]:
    return row.row.model_dump(mode="json", exclude={"index"}, exclude_defaults=True)


def path_of(file: Path) -> Path:
    """The page of a task file."""
    return file.with_name(f"{file.name}.report.html")


def write(file: Path, card: DataCard, samples: Samples) -> None:
    """Write the page of a task file."""
    facts = {"task": card.task, "built": card.date, "sources": card.where, "stands in": card.stands_in}
    lines = [f"{name}: {text}" for name, text in facts.items() if text]
    lines += [f"{count:,} left out: {why}" for why, count in card.left_out.items()]
    policy = {"http_equiv": "Content-Security-Policy", "content": "default-src 'none'; style-src 'unsafe-inline'"}
    head = join(element("meta", charset="utf-8"), element("meta", **policy), element("title", card.file))
    body = join(
        element("h1", card.file),
        element("p", card.summary),
        element("ul", *(element("li", line) for line in lines)),
        *(_section(title, sample) for title, sample in (("Kept", samples.kept), ("Dropped", samples.dropped))),
    )
    page = element("html", element("head", head, element("style", _STYLE)), element("body", body), lang="en")
    write_whole(path_of(file), f"<!doctype html>\n{page}")


def _section(title: str, sample: Sample) -> Markup:
    count = f"{len(sample.items):,} of {sample.seen:,}, drawn by seed" if sample.items else "none"
    return join(element("h2", f"{title} ", element("small", count)), *map(_article, sample.items))


def _article(item: Decision) -> Markup:
    columns = []
    for name, texts in (("Source", item.source), ("Result", item.result)):
        shown = [join(element("p", title), element("pre", _text(value))) for title, value in texts.items()]
        columns += [element("div", element("h4", name), *shown)] if texts else []
    reason = element("p", element("strong", item.reason)) if item.reason else None
    return element("article", element("h3", item.key), reason, element("div", *columns, class_="pair"))


def _text(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=1)
    return text if len(text) <= _CHARS else f"{text[:_CHARS]} [...]"
