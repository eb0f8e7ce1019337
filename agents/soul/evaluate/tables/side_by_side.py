"""Several runs in one table: sets as lines in the card's order, models as columns.

An average is over the sets that every model has a number for, the same sets in every column, and says how many these
are. This table is for comparing models by eye; `python -m soul.compare` says whether a difference is significant. The
command for finished runs is `python -m soul.compare.table`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table
from rich.text import Text

from soul.evaluate.numbers.breakdown import natural
from soul.evaluate.numbers.results import Average, Results
from soul.evaluate.numbers.set_result import SetResult
from soul.evaluate.tables.table import NONE, invalid_share, ordered, score
from soul.suites import soul_v1

TITLES = ("set", "n")
Marks = Mapping[str, Mapping[str, str]]  # model -> set -> the mark behind its score, such as "(1)"


@dataclass(frozen=True)
class ComparisonLine:
    """One line of the table, as text.

    Attributes:
        dimension: the card's; "average" for the lines at the end, "" for a set that the card does not list.
        n: samples; one number for each model where they differ.
        scores: one a model: score, interval, and the share of samples without a verdict where there are any.
    """

    dimension: str
    name: str
    n: str
    scores: tuple[str, ...]

    @property
    def cells(self) -> tuple[str, ...]:
        return (self.name, self.n, *self.scores)


def lines(models: Mapping[str, Results], *, intervals: bool = True, marks: Marks | None = None) -> list[ComparisonLine]:
    """The lines of the table: the sets that any model has, AlignX's mean after its sets, the averages.

    Args:
        models: name -> its results; the first one's sets come first where the card does not order them.
        intervals: whether a score has its interval beside it.
        marks: of scores that a note explains; an average has the marks of its sets.
    """

    def marked(cells: Iterable[str], names: Sequence[str]) -> tuple[str, ...]:
        by_model = [(marks or {}).get(model, {}) for model in models]
        found = [" ".join(sorted({of[name] for name in names if name in of}, key=natural)) for of in by_model]
        return tuple(f"{cell} {mark}" if cell and mark else cell for cell, mark in zip(cells, found, strict=True))

    def line(dimension: str, title: str, results: Sequence[SetResult | None]) -> ComparisonLine:
        cells = ("" if r is None else _cell(r, r.invalid, r.samples, intervals) for r in results)
        counts = _counts([None if r is None else r.samples for r in results])
        return ComparisonLine(dimension, title, counts, marked(cells, [title]))

    def averaged(dimension: str, title: str, names: Sequence[str]) -> ComparisonLine:
        averages = [results.average(names) for results in models.values()]
        invalid = [sum(results.sets[name].invalid for name in names) for results in models.values()]
        samples = [sum(results.sets[name].samples for name in names) for results in models.values()]
        cells = (_cell(*each, intervals) for each in zip(averages, invalid, samples, strict=True))
        return ComparisonLine(dimension, title, _counts(samples), marked(cells, names))

    names = ordered(list(dict.fromkeys(name for results in models.values() for name in results.sets)))
    found: list[ComparisonLine] = []
    for name in names:
        found.append(
            line(soul_v1.DIMENSIONS.get(name, ""), name, [results.sets.get(name) for results in models.values()])
        )
        if name == ordered(soul_v1.ALIGNX)[-1] and set(soul_v1.ALIGNX) <= set(shared(models)):
            found.append(averaged(soul_v1.DIMENSIONS[name], f"alignx, mean of {len(soul_v1.ALIGNX)}", soul_v1.ALIGNX))
    common = [name for name in names if name in shared(models)]
    if len(names) > 1 and common:
        which = (
            f"{len(names)} sets" if len(common) == len(names) else f"{len(common)} of {len(names)} sets, of all models"
        )
        found.append(averaged("average", f"macro average, {which}", common))
    if set(soul_v1.PAPER) <= set(common) and len(common) > len(soul_v1.PAPER):
        found.append(averaged("average", "macro average, paper's 10", soul_v1.PAPER))
    return found


def shared(models: Mapping[str, Results]) -> list[str]:
    """The sets that every model has a number for."""
    first, *others = models.values()
    return [
        name
        for name in first.sets
        if all(name in results.sets and results.sets[name].mean is not None for results in (first, *others))
    ]


def rich_table(
    models: Mapping[str, Results],
    title: str = "Models",
    *,
    width: int | None = None,
    marks: Marks | None = None,
    notes: Sequence[str] = (),
) -> Table:
    """The table for the terminal, with a rule between the card's dimensions.

    Args:
        width: of the terminal. Where the table is wider, intervals go first, and the caption says so.
        marks: see `lines`.
        notes: explain the marks below the table.
    """
    view = _drawn(models, lines(models, marks=marks), title)
    below = list(notes)
    if width is not None and Console(width=10_000).measure(view).maximum > width:
        view = _drawn(models, lines(models, intervals=False, marks=marks), title)
        below.insert(0, "Too narrow for the 95 % intervals: they are in the Markdown table.")
    view.caption = Text("\n".join(below)) if below else None
    return view


def markdown(models: Mapping[str, Results], *, marks: Marks | None = None, notes: Sequence[str] = ()) -> str:
    """The table as Markdown, with the notes below it."""
    head = (*TITLES, *(f"{name}: score [95 %]" for name in models))
    rules = ["---", *["---:"] * (len(head) - 1)]
    body = [line.cells for line in lines(models, marks=marks)]
    table_ = [f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in (head, rules, *body)]
    return "".join(f"{line}\n" for line in (*table_, *(f"\n{_escaped(note)}" for note in notes)))


def _drawn(models: Mapping[str, Results], found: Sequence[ComparisonLine], title: str) -> Table:
    view = Table(title=Text(title), title_justify="left", caption_justify="left")
    for name in (*TITLES, *models):
        view.add_column(Text(name), justify="left" if name == "set" else "right", overflow="fold")
    for place, line in enumerate(found, start=1):
        last = place == len(found) or found[place].dimension != line.dimension
        view.add_row(*(Text(cell) for cell in line.cells), end_section=last)  # names, not markup
    return view


def _escaped(text: str) -> str:
    """Text in which Markdown finds no tag."""
    return text.replace("<", "&lt;")


def _cell(of: SetResult | Average, invalid: int, samples: int, intervals: bool) -> str:
    failed = f", {invalid_share(invalid, samples, None)} invalid" if invalid else ""
    return (score(of.mean, of.interval if intervals else None) if samples else NONE) + failed


def _counts(counts: Sequence[int | None]) -> str:
    """One number where the models agree, else one for each."""
    texts = [NONE if count is None else f"{count:,}" for count in counts]
    return texts[0] if len(set(texts)) == 1 else " / ".join(texts)
