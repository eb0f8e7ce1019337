"""Write a comparison as one HTML file that loads nothing: `soul compare A B --html F.html`.

The page has a head, the table of sets (results.html), and every paired row: an index for the list, and both texts of
each row in parts. page.css styles it, pairs.js shows the rows. Everything else comes from the report of an evaluation
(agents/soul/evaluate/report).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

from soul.compare import report
from soul.compare.comparison import Comparison, SetComparison
from soul.compare.pairs import Pair
from soul.evaluate.report import FILE, set_facts
from soul.evaluate.report.markup import Markup, element, join
from soul.evaluate.report.page_parts import (
    SHOWN_CHARACTERS,
    SHOWN_OF_ANSWERS,
    Page,
    filled,
    plain,
    read,
    script_of,
    start_of,
    to_json,
    write_page,
)
from soul.evaluate.report.results_table import names_of
from soul.evaluate.tables.answers import Answers, answers_of
from soul.message import Message
from soul.record import AttemptRecord, Conversations, SessionRecord

SCRIPTS = ("store", "elements", "link", "list", "browser", "scene", "sample")
_HERE = Path(__file__).parent
TALLY = "won / tied / lost"


def write_comparison(comparison: Comparison, file: Path) -> None:
    """Write the page. Its links to the two reports are relative to the folder of `file`."""
    write_page(file, _pieces(comparison, file.parent))


def _pieces(comparison: Comparison, folder: Path) -> Iterator[str]:
    rows = paired_rows(comparison)
    page = Page(
        kind="comparison",
        title=join(" against ".join(reversed(comparison.labels))),
        results=filled(_own("results.html"), overview=overview(comparison), table=sets_table(comparison)),
        entry="row",
        entries="rows",
        state="Outcome",
        number="Difference",
        count=len(rows),
        style=read("report.css") + _own("page.css"),
        script="\n".join((script_of(SCRIPTS), _own("pairs.js"), script_of(["page"]))),
    )
    known = {
        "labels": comparison.labels,
        "reports": [_report(run.folder, folder) for run in (comparison.base, comparison.other)],
        "sets": [set_facts(name, one.headline) for name, one in comparison.sets.items()],
        "names": names_of(row.pair.base[0].groups for row in rows),
    }
    lines = (to_json(row_line(row)) for row in rows)
    return page.pieces(lines, known, lambda starts: index(rows, list(comparison.sets), starts))


def _report(run: Path, folder: Path) -> str | None:
    """The relative URL of a run's report from this folder; None if the run has no report."""
    file = run / FILE
    if not file.is_file():
        return None
    return quote(Path(os.path.relpath(file.resolve(), folder.resolve())).as_posix(), errors="replace")


def _own(name: str) -> str:
    return (_HERE / name).read_text(encoding="utf-8")


class PairedRow(NamedTuple):
    """A row that has a score in both runs.

    Attributes:
        shown: the sample of each run that explains most of the difference.
        answers: question and answers of these two samples.
        gain: how much better the other run is; negative if it is worse.
    """

    set: str
    pair: Pair
    shown: tuple[SessionRecord, SessionRecord]
    answers: tuple[Answers, Answers]
    gain: float


def paired_rows(comparison: Comparison) -> list[PairedRow]:
    """All paired rows of a comparison, in the order of the sets and of their files."""
    rows = []
    for name, one in comparison.sets.items():
        for pair in one.paired.pairs:
            shown = pair.shown()
            base, other = answers_of(shown)
            rows.append(PairedRow(name, pair, shown, (base, other), one.gain(pair)))
    return rows


def index(rows: Sequence[PairedRow], sets: Sequence[str], starts: Sequence[int]) -> dict[str, Any]:
    """The columns that the list shows, sorts by and filters by.

    Args:
        sets: all names of sets; a row stores its set's place in them.
        starts: the row with which each part begins.
    """
    places = {name: place for place, name in enumerate(sets)}
    columns: dict[str, Any] = plain(
        {
            "starts": list(starts),
            "set": [places[row.set] for row in rows],
            "number": [row.pair.number for row in rows],
            "question": [start_of(row.answers[0].question, SHOWN_CHARACTERS) for row in rows],
            "target": [start_of(row.answers[0].target, SHOWN_OF_ANSWERS) for row in rows],
            "base": [row.pair.scores[0] for row in rows],
            "other": [row.pair.scores[1] for row in rows],
            "difference": [row.pair.difference for row in rows],
            "gain": [(row.gain > 0) - (row.gain < 0) for row in rows],
            "groups": [row.pair.base[0].groups for row in rows],
        }
    )
    return columns


def row_line(row: PairedRow) -> dict[str, Any]:
    """A row with both texts. Messages that both models saw are stored once."""
    common = _common([sample.draft.seats or {} for sample in row.shown])
    return {
        "set": row.set,
        "number": row.pair.number,
        "row": row.pair.row,
        "record": row.shown[0].record,
        "question": row.answers[0].question,
        "target": row.answers[0].target,
        "prompt": common,
        "sides": [
            {
                "sample": sample.sample,
                "of": len(samples),
                "score": score,
                "given": answers.given,
                "draft": _draft(sample.draft, len(common)),
            }
            for sample, samples, score, answers in zip(
                row.shown, (row.pair.base, row.pair.other), row.pair.scores, row.answers, strict=True
            )
        ],
    }


def _common(seats: Sequence[Conversations]) -> list[Message]:
    """The messages that both conversations begin with, if each has a single seat."""
    if any(len(side) != 1 for side in seats):
        return []
    base, other = (next(iter(side.values())) for side in seats)
    messages = []
    for one, two in zip(base, other, strict=False):
        if one != two or one["role"] == "assistant":
            break
        messages.append(one)
    return messages


def _draft(draft: AttemptRecord, common: int) -> dict[str, Any]:
    """The part of a draft that the page shows.

    In a scene (`lines`, `acts`), every seat's messages repeat the turns of all others, so the page keeps only each
    seat's own turns. The reports have the rest.
    """
    scene: dict[str, Any] = {key: draft.episode[key] for key in ("lines", "acts") if key in draft.episode}
    kept = {
        seat: [m for m in messages if m["role"] == "assistant"] if scene else messages[common:]
        for seat, messages in (draft.seats or {}).items()
    }
    shown = {"reward", "metrics", "critique", "ended", "contentless"}
    return {"seats": kept, **scene, **draft.model_dump(include=shown)}


def overview(comparison: Comparison) -> Markup:
    """Names and folders of the two runs, warnings and notes."""
    base, other = comparison.labels
    facts = (("Baseline", base, comparison.base), ("Compared run", other, comparison.other))
    listed = [
        element("div", element("dt", title), element("dd", element("b", label), f" {run.folder}"))
        for title, label, run in facts
    ]
    warnings = [element("p", text) for text in report.warnings(comparison)]
    return join(
        element("p", "SOUL, row by row", class_="kind"),
        element("h1", f"{other} against {base}"),
        element("dl", *listed, class_="facts"),
        element("section", *warnings, class_="warnings", aria_label="Warnings") if warnings else None,
        element("div", *(element("p", text) for text in report.notes(comparison)), class_="notes"),
    )


def sets_table(comparison: Comparison) -> Markup:
    """The same table as in the terminal; a set's name and its counts link to the rows."""
    titles = report.titles(comparison)
    # The last line, the macro average, belongs to no set.
    lines = zip_longest(report.lines(comparison), comparison.sets.values())
    rows = [_row(titles, cells, one) for cells, one in lines]
    head = element("tr", *(element("th", title, scope="col") for title in titles))
    return element("table", element("thead", head), element("tbody", *rows), id="sets-table")


def _row(titles: tuple[str, ...], cells: tuple[str, ...], one: SetComparison | None) -> Markup:
    name, *others = cells
    if one is None or not one.rows:
        return element("tr", element("th", name, scope="row"), *(element("td", cell) for cell in others))
    drawn = [
        element("td", _tally(one) if title == TALLY else cell) for title, cell in zip(titles[1:], others, strict=True)
    ]
    return element("tr", element("th", _link(name, set=one.name), scope="row"), *drawn)


def _tally(one: SetComparison) -> Markup:
    parts: list[str] = []
    for state, count in zip(("won", "tied", "lost"), one.tally, strict=True):
        text = f"{count:,} {state}"
        parts += [_link(text, set=one.name, state=state) if count else text, " / "]
    return join(*parts[:-1])


def _link(text: str, **query: str) -> Markup:
    """A link to the rows of the page that match these filters (the report's script/link.js)."""
    return element("a", text, href=f"#samples?{urlencode(query, errors='replace')}")
