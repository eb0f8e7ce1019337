"""Several runs in one table: sets as rows in the card's order, models as columns.

Averages are over the sets for which every model has a number, so that all columns have the same sets; their title says
how many. This table is for comparing models by eye; `soul compare` tells whether a difference is significant. For
finished runs, use `soul compare table`.
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
        n: number of samples; one per model if they differ.
        scores: one per model: score, interval, and the share of samples without a verdict if there are any.
    """

    dimension: str
    name: str
    n: str
    scores: tuple[str, ...]

    @property
    def cells(self) -> tuple[str, ...]:
        return (self.name, self.n, *self.scores)


def lines(models: Mapping[str, Results], *, intervals: bool = True, marks: Marks | None = None) -> list[ComparisonLine]:
    """The lines of the table: all sets, AlignX's mean after its sets, the averages.

    Args:
        models: name -> its results; sets that the card does not list come in the order of the first model.
        intervals: whether to show intervals beside scores.
        marks: marks of scores that a note explains; an average has the marks of its sets.
    """

    def marked(cells: Iterable[str], names: Sequence[str]) -> tuple[str, ...]:
        by_model = [(marks or {}).get(model, {}) for model in models]
        shown = [" ".join(sorted({by_set[n] for n in names if n in by_set}, key=natural)) for by_set in by_model]
        return tuple(f"{cell} {mark}" if cell and mark else cell for cell, mark in zip(cells, shown, strict=True))

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
    table: list[ComparisonLine] = []
    for name in names:
        of_models = [results.sets.get(name) for results in models.values()]
        table.append(line(soul_v1.DIMENSIONS.get(name, ""), name, of_models))
        if name == ordered(soul_v1.ALIGNX)[-1] and set(soul_v1.ALIGNX) <= set(shared(models)):
            table.append(averaged(soul_v1.DIMENSIONS[name], f"alignx, mean of {len(soul_v1.ALIGNX)}", soul_v1.ALIGNX))
    common = [name for name in names if name in shared(models)]
    if len(names) > 1 and common:
        which = "sets" if len(common) == len(names) else f"of {len(names)} sets, of all models"
        table.append(averaged("average", f"macro average, {len(common)} {which}", common))
    if set(soul_v1.PAPER) <= set(common) and len(common) > len(soul_v1.PAPER):
        table.append(averaged("average", "macro average, paper's 10", soul_v1.PAPER))
    return table


def shared(models: Mapping[str, Results]) -> list[str]:
    """The sets for which every model has a number."""
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
        width: of the terminal. A wider table is shown without intervals, and the caption says so.
        marks: see `lines`.
        notes: lines below the table that explain the marks.
    """
    view = _drawn(models, lines(models, marks=marks), title)
    below = list(notes)
    if width is not None and Console(width=10_000).measure(view).maximum > width:
        view = _drawn(models, lines(models, intervals=False, marks=marks), title)
        below.insert(0, "Too narrow for the 95 % intervals; the Markdown table has them.")
    view.caption = Text("\n".join(below)) if below else None
    return view


def markdown(models: Mapping[str, Results], *, marks: Marks | None = None, notes: Sequence[str] = ()) -> str:
    """The table as Markdown, with the notes below it."""
    head = (*TITLES, *(f"{name}: score [95 %]" for name in models))
    rules = ["---", *["---:"] * (len(head) - 1)]
    body = [line.cells for line in lines(models, marks=marks)]
    rows = [f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in (head, rules, *body)]
    return "".join(f"{line}\n" for line in (*rows, *(f"\n{_escaped(note)}" for note in notes)))


def _drawn(models: Mapping[str, Results], table: Sequence[ComparisonLine], title: str) -> Table:
    view = Table(title=Text(title), title_justify="left", caption_justify="left")
    for name in (*TITLES, *models):
        view.add_column(Text(name), justify="left" if name == "set" else "right", overflow="fold")
    for place, line in enumerate(table, start=1):
        last = place == len(table) or table[place].dimension != line.dimension
        view.add_row(*(Text(cell) for cell in line.cells), end_section=last)  # names, not markup
    return view


def _escaped(text: str) -> str:
    """Text without HTML tags for Markdown."""
    return text.replace("<", "&lt;")


def _cell(result: SetResult | Average, invalid: int, samples: int, intervals: bool) -> str:
    failed = f", {invalid_share(invalid, samples, None)} invalid" if invalid else ""
    return (score(result.mean, result.interval if intervals else None) if samples else NONE) + failed


def _counts(counts: Sequence[int | None]) -> str:
    """One number if the models agree, else one per model."""
    texts = [NONE if count is None else f"{count:,}" for count in counts]
    return texts[0] if len(set(texts)) == 1 else " / ".join(texts)
