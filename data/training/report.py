"""A page with rows that a training file kept and rows that it dropped, each beside its source: `FILE.report.html`.

Read it before you train: counts say how much was dropped, and only the rows say whether that was right. Rows are drawn
by seed from the whole file. The page loads nothing and runs no script, and every text in it is escaped.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from data.built import Decision
from soul.evaluate.report.markup import Markup, element, join
from soul.evaluate.report.page_parts import policy, read
from soul.files.whole_file import write_whole
from soul.rows.data_card import DataCard
from soul.rows.overlap import ScopedKey
from soul.rows.task_files import TaskRow

SHOWN = 50  # rows that were kept, and as many that were dropped
_CHARS = 4000  # of one text
_STYLE = """
main { max-width: 1100px; }
article { border-top: 1px solid var(--line); padding: 14px 0; }
.pair { display: grid; grid-template-columns: 1fr 1fr; gap: 20px; }
@media (max-width: 800px) { .pair { grid-template-columns: 1fr; } }
"""


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
        self.kept.add(Decision(f"row {row.number}", _fields(row), {"prompt": _prompt(row)}, ""))

    def drop(self, row: TaskRow, shared: ScopedKey) -> None:
        """A row that shares a group with an evaluated one."""
        self.dropped.add(Decision(f"row {row.number}", _fields(row), {}, f"evaluated: {shared[1]}"))

    def replace_with(self, decisions: Iterable[Decision]) -> None:
        """Show what a builder decided about items, whose sources it knows, instead of the rows that were kept."""
        self.kept = Sample(self.kept.rng)
        for decision in decisions:
            (self.dropped if decision.reason else self.kept).add(decision)


def _fields(row: TaskRow) -> Mapping[str, Any]:
    return row.row.model_dump(mode="json", exclude={"index"}, exclude_defaults=True)


def _prompt(row: TaskRow) -> str:
    return "\n\n".join(message["content"] for message in row.task.prompt(row.row))


def path_of(file: Path) -> Path:
    """The page of a task file."""
    return file.with_name(f"{file.name}.report.html")


def write(file: Path, card: DataCard, samples: Samples) -> None:
    """Write the page of a task file."""
    style = read("report.css") + _STYLE
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=policy(style, "")),
        element("title", card.file),
        element("style", Markup(style)),
    )
    facts = {"task": card.task, "built": card.date, "sources": card.where, "stands in": card.stands_in}
    counts = element("ul", *(element("li", f"{count:,} left out: {why}") for why, count in card.left_out.items()))
    header = element(
        "header",
        element("p", "Training file", class_="kind"),
        element("h1", card.file),
        element("p", card.summary),
        element(
            "dl",
            *(element("div", element("dt", name), element("dd", text)) for name, text in facts.items() if text),
            class_="facts",
        ),
        counts,
    )
    parts = [_section("Kept", samples.kept), _section("Dropped", samples.dropped)]
    body = element("body", element("main", header, *parts))
    write_whole(path_of(file), f"<!doctype html>\n{element('html', head, body, lang='en')}\n")


def _section(title: str, sample: Sample) -> Markup:
    count = f"{len(sample.items):,} of {sample.seen:,}, drawn by seed" if sample.items else "none"
    return element(
        "section", element("h2", title, " ", element("small", count)), *(_article(item) for item in sample.items)
    )


def _article(item: Decision) -> Markup:
    reason = element("p", item.reason, class_="failed") if item.reason else None
    columns = [element("div", element("h3", name), _texts(texts)) for name, texts in _columns(item)]
    return element("article", element("h3", item.key, class_="seat"), reason, element("div", *columns, class_="pair"))


def _columns(item: Decision) -> list[tuple[str, Mapping[str, Any]]]:
    return [(name, texts) for name, texts in (("Source", item.source), ("Result", item.result)) if texts]


def _texts(texts: Mapping[str, Any]) -> Markup:
    return join(
        *(join(element("p", name, class_="small"), element("pre", _text(value))) for name, value in texts.items())
    )


def _text(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=1)
    return text if len(text) <= _CHARS else f"{text[:_CHARS]} [...]"
