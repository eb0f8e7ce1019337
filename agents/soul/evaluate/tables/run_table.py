"""The table of a run, for the terminal and as Markdown: in the model card's order and scale, with published numbers.

A score is the headline times 100, which is the card's scale for every task (Sotopia: a tenth of the mean of the seven
scores, 45.8 on the card). A line of averages has a published number only if that number covers the same sets. There is
no published number for a set with stand-in rows, which is marked; for a set that an option scores by another metric; or
for an average over either.

Warnings say that a set's score may be wrong for the model. Notes say which model judged which set, and what to know
before you compare the numbers.
"""

import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from soul import tasks
from soul.evaluate.numbers.results import Average, Results
from soul.evaluate.numbers.set_result import SetResult
from soul.evaluate.run.judge_check import judge_warning
from soul.evaluate.run.run_folder import EvaluationRun, endpoints_asked
from soul.judge.audit.card import cards_of
from soul.judge.call.endpoint import DEFAULT_MODEL
from soul.judge.call.usage import total
from soul.judge.ledger import money
from soul.judge.roles import Role, paper_judge
from soul.metrics.intervals import Interval
from soul.suites import soul_v1, suite
from soul.suites.published import Column
from soul.table import NONE, Cell, Table

SHOWN = soul_v1.COLUMNS
OWN = ("set", "score [95 %]", "n", "invalid (bounds)", "cost")
READABLE = 0.8  # a smaller share of readable answers gets a warning
FEWEST_ROWS = 5  # with fewer rows, a score of 0 is not unusual
_PLAYED_BY_MODELS: tuple[Role, ...] = ("environment", "partner")  # the paper's environment model is gpt-5-nano


@dataclass(frozen=True)
class TableLine:
    """One line of the table, as text, and the set or the average that it shows.

    Attributes:
        dimension: the card's; "average" for the lines at the end, "" for a set that the card does not list.
        cells: one per title of `titles`.
        published: one per published column; "" if the source has no number.
    """

    dimension: str
    cells: tuple[str, ...]
    published: tuple[str, ...]
    result: SetResult | Average


def columns_of(name: str | None) -> tuple[Column, ...]:
    """The published columns beside a run: those of its suite; `SHOWN` if it has none."""
    return suite(name).columns if name else SHOWN


def ordered(names: Sequence[str]) -> list[str]:
    """The sets in the card's order; those that it does not list come last, in the given order."""
    places = {name: place for place, name in enumerate(soul_v1.DIMENSIONS)}
    return sorted(names, key=lambda name: places.get(name, len(places)))


def titles(results: Results) -> tuple[str, ...]:
    """The titles of the run's own columns; with several samples of a row also best@N."""
    n = results.per_row_samples
    return (*OWN[:2], f"best@{n}", *OWN[2:]) if n > 1 else OWN


def lines(results: Results, columns: Sequence[Column] = SHOWN) -> list[TableLine]:
    """The lines of the table: the sets, AlignX's mean after its sets, the averages."""
    table: list[TableLine] = []
    names, alignx = ordered(list(results.sets)), results.alignx

    def add(
        dimension: str, title: str, members: Sequence[str], result: SetResult | Average, theirs: Sequence[float | None]
    ) -> None:
        counts = _counts([results.sets[name] for name in members], result.bounds)
        doubt = " ?" if any(results.sets[name].judge_problems for name in members) else ""
        mark = " *" if any(results.sets[name].stands_in for name in members) else ""
        if not all(results.sets[name].as_published for name in members):
            theirs = [None for _ in theirs]
        own = (title, score(result.mean, result.interval) + doubt + mark, *_several_cells(results, members), *counts)
        table.append(TableLine(dimension, own, tuple(map(_number, theirs)), result))

    for name in names:
        dimension = soul_v1.DIMENSIONS.get(name, "")
        add(dimension, name, [name], results.sets[name], [c.scores.get(name) for c in columns])
        if alignx is not None and name == ordered(soul_v1.ALIGNX)[-1]:
            published = [c.scores.get("alignx") for c in columns]
            add(dimension, f"alignx, mean of {alignx.sets}", soul_v1.ALIGNX, alignx, published)
    if len(names) > 1:
        macro = results.macro
        # Published averages cover all these sets; beside an average over fewer they would mislead.
        comparable = macro.sets == macro.of
        title = f"macro average, {macro.sets} {'sets' if comparable else f'of {macro.of} sets'}"
        add("average", title, names, macro, [c.macro(names) if comparable else None for c in columns])
    if results.paper is not None and len(names) > len(soul_v1.PAPER):
        published = [c.macro(soul_v1.PAPER) for c in columns]
        add("average", "macro average, paper's 10", soul_v1.PAPER, results.paper, published)
    return table


def run_table(results: Results, columns: Sequence[Column] = SHOWN, *, width: int | None = None) -> Table:
    """The table with its notes; if it is wider than this terminal, without the published columns and what else is
    too much (`Table.fitting`)."""
    notes = [*explanations(results), *warning_lines(results.sets)]
    table = _table(results, columns, notes)
    if width is None or table.fits(width):
        return table
    left_out = ["the published numbers"] if columns else []
    return _table(results, (), notes).fitting(width, "table.md and the report have them", left_out)


def _table(results: Results, columns: Sequence[Column], notes: Sequence[str]) -> Table:
    found, own = lines(results, columns), titles(results)
    invalid = own.index("invalid (bounds)")
    body = [[*map(Cell, line.cells), *map(Cell, line.published)] for line in found]
    for cells in body:
        share, bounded, bounds = cells[invalid].text.partition(" (")
        cells[invalid] = Cell(share, suffix=bounded.strip() + bounds)
    return Table(
        head=[*own, *(f"{c.model}\n({c.source})" for c in columns)],
        lines=body,
        sections=[line.dimension for line in found],
        notes=notes,
        whole=frozenset({0, 1}),  # names and intervals; other columns wrap if the terminal is narrow
        optional=(len(own) - 1, *range(2, invalid - 1), invalid - 1, invalid),
        suffixes="bounds",
    )


def markdown(results: Results, columns: Sequence[Column] = SHOWN) -> str:
    """The table and its notes as Markdown."""
    notes = [*explanations(results), *(f"> {text}" for text in warning_lines(results.sets))]
    return run_table(results, columns).markdown() + "".join(f"\n{note}\n" for note in notes)


def explanations(results: Results) -> list[str]:
    """A line for each set with metrics of the whole set: those of which its score is the mean, or those beside it."""
    lines = []
    for name, result in results.sets.items():
        if result.joint is not None and result.mean is not None:
            lines.append(
                f"{name}: the score is {result.headline.name}, the mean of {', '.join(result.joint.valid.parts)}."
            )
        if result.whole:
            shown = ", ".join(f"{metric} {value:.3g}" for metric, value in result.whole.items())
            lines.append(f"{name}, beside the score: {shown}.")
    return lines


def score(mean: float | None, interval: Interval | None) -> str:
    """A score on the card's scale, with its interval; a dash for an interval that is not known."""
    if mean is None:
        return NONE
    ends = f"{100 * interval[0]:.1f}, {100 * interval[1]:.1f}" if interval else NONE
    return f"{_number(100 * mean)} [{ends}]"


def invalid_share(invalid: int, samples: int, bounds: Interval | None) -> str:
    """The share of samples without a verdict, and the scores if all of them were the worst, and the best."""
    if not samples:
        return NONE
    if not invalid:
        return "0 %"
    share = f"{100 * invalid / samples:.1f} %" if invalid / samples >= 0.001 else "< 0.1 %"
    return share + (f" ({100 * bounds[0]:.1f} to {100 * bounds[1]:.1f})" if bounds else "")


def _counts(results: Sequence[SetResult], bounds: Interval | None) -> tuple[str, str, str]:
    samples, rows = sum(r.samples for r in results), sum(r.rows for r in results)
    n = f"{samples:,}" if samples == rows else f"{samples:,} ({rows:,} rows)"
    cost = money(total(count for r in results for count in r.usage.values()))
    return n, invalid_share(sum(r.invalid for r in results), samples, bounds), cost


def _several_cells(results: Results, names: Sequence[str]) -> tuple[str, ...]:
    """The cell of best@N, if the table has it; an average needs a number of each of its sets."""
    n = results.per_row_samples
    values = [results.sets[name].best.get(n) for name in names]
    known = [100 * value[0] for value in values if value is not None]
    return () if n < 2 else (_number(statistics.fmean(known)) if len(known) == len(values) else NONE,)


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.1f}"


class SetWarning(NamedTuple):
    """A warning about one set: the problem, what to check, and the set's own number."""

    title: str
    advice: str
    detail: str

    def __str__(self) -> str:
        return f"{self.title} ({self.detail}). {self.advice}"


def warnings_of(result: SetResult) -> list[SetWarning]:
    """The warnings about one set."""
    found = []
    if result.stands_in:
        advice = "Such a set is marked with *, and no published number is beside it or beside an average over it."
        found.append(SetWarning("Other rows than the paper's", advice, result.stands_in))
    means = [row.mean for row in result.per_row if row.mean is not None]
    lowest = set(means) in ({0.0}, {result.headline.worst})
    if len(means) >= FEWEST_ROWS and result.headline.higher_is_better and lowest:
        title = f"Every row scores exactly {100 * means[0]:.1f}".removesuffix(".0")
        advice = (
            "Open a few samples before you trust this. Is there an answer, is it complete, and does it have the form "
            "that the prompt asks for?"
        )
        found.append(SetWarning(title, advice, f"{len(means):,} rows"))
    readable = result.metrics.get("answered")
    if readable is not None and readable < READABLE:
        advice = (
            "Open a few samples. Is the tag or the label missing, or did the model stop before it "
            "(policy.max_output_tokens)? An answer that could not be read scores as wrong."
        )
        title = "Few answers have the form that the prompt asks for"
        found.append(SetWarning(title, advice, f"{100 * readable:.0f} % read"))
    for model, problems in result.judge_problems.items():
        advice = (
            "Its scores are marked with ?. Choose a stronger judge (judge.model=...), or judge the same episodes again "
            "(--rescore). To see the replies: soul judge canaries."
        )
        detail = "no score" if result.mean is None else f"score {100 * result.mean:.1f}"
        found.append(SetWarning(judge_warning(model, problems), advice, detail))
    return found


def grouped(sets: Mapping[str, SetResult]) -> dict[SetWarning, dict[str, str]]:
    """The warnings about several sets, in the order of the sets: warning without detail -> set -> detail."""
    groups: dict[SetWarning, dict[str, str]] = {}
    for name, result in sets.items():
        for warning in warnings_of(result):
            groups.setdefault(SetWarning(warning.title, warning.advice, ""), {})[name] = warning.detail
    return groups


def warning_lines(sets: Mapping[str, SetResult]) -> list[str]:
    """The warnings about several sets, one line per warning."""
    return [
        f"{warning.title}: {', '.join(f'{name} ({detail})' for name, detail in by_set.items())}. {warning.advice}"
        for warning, by_set in grouped(sets).items()
    ]


def models_asked(settings: Mapping[str, Any], role: Role, task: str) -> tuple[str, ...]:
    """The models with this role for a task of a run: several are a jury; none: the task does not use the role.

    Args:
        settings: `EvaluationRun.settings`.
    """
    if not tasks.load(task).calls_per_episode.get(role):
        return ()
    return tuple(endpoint["model"] for endpoint in endpoints_asked(settings, role, task))


def models_by_role(run: EvaluationRun, results: Results) -> dict[str, str]:
    """The models that judged each set and those that played the other side: "Judges" -> "m (sotopia); n (coser)".

    After them come the cards of judges that are in the run's folder.
    """
    judges, others = _by_model(run, results, ("judge",)), _by_model(run, results, _PLAYED_BY_MODELS)
    by_rule = [name for name in _tasks(results) if not any(name in names for names in judges.values())]
    roles = {"Judges": {**judges, "by rule alone": by_rule}, "Partners and environments": others}
    texts = {role: _with_sets(by_model) for role, by_model in roles.items()}
    return {role: text for role, text in texts.items() if text} | cards_of(run.folder)


def judged_by(run: EvaluationRun, results: Results) -> list[str]:
    """The lines above the table: `models_by_role`."""
    return [f"{role}: {models}." for role, models in models_by_role(run, results).items()]


def _by_model(run: EvaluationRun, results: Results, roles: Sequence[Role]) -> dict[str, list[str]]:
    """Model -> the sets for which it had one of these roles; a jury's models are joined by "+"."""
    sets_of: defaultdict[str, list[str]] = defaultdict(list)
    for name, task in _tasks(results).items():
        for model in dict.fromkeys(" + ".join(models_asked(run.settings, role, task)) for role in roles):
            if model:
                sets_of[model].append(name)
    return dict(sets_of)


def _with_sets(by_model: Mapping[str, Sequence[str]]) -> str:
    return "; ".join(f"{model} ({', '.join(names)})" for model, names in by_model.items() if names)


def cautions(run: EvaluationRun, results: Results) -> list[str]:
    """The lines below the table: what to know before you compare these numbers with others."""
    lines, named = [], _tasks(results)
    if run.missing:
        asked = len(run.missing) + len(results.sets)
        lines.append(
            f"Not evaluated, and in no average, because the file is missing: {', '.join(run.missing)} "
            f"({len(run.missing)} of the {asked} requested sets)."
        )
    if run.suite and run.limit != suite(run.suite).rows:
        rows, suite_rows = (f"{rows:,} rows" if rows else "all rows" for rows in (run.limit, suite(run.suite).rows))
        lines.append(f"The suite {run.suite} takes {suite_rows} of each set; this run takes {rows}.")
    columns = columns_of(run.suite)
    others = [
        f"{name}: {role} {' + '.join(models)}, not {wanted}"
        for name, task in named.items()
        if results.sets[name].as_published
        and any(column.source == "paper" and name in column.scores for column in columns)
        for role, models, wanted in _deviations(run.settings, task)
    ]
    if others:
        lines.append(f"Warning: the paper's numbers were scored by other models. {'; '.join(others)}.")
    lines += [f"Warning: {check['changed']}" for check in run.judge_checks.checks if check.get("changed")]
    if (tests := run.judge_checks.usage).calls:
        lines.append(f"The test of its judges took {tests.calls:,} calls, which no set counts: {money(tests)}.")
    return lines


def _tasks(results: Results) -> dict[str, str]:
    """Set -> task, for the sets whose task is known, in the order of the table."""
    return {name: results.sets[name].task for name in ordered(list(results.sets)) if results.sets[name].task}


def _deviations(settings: Mapping[str, Any], task: str) -> list[tuple[str, Sequence[str], str]]:
    """The roles of a task that another model than the paper's has: role, models, the paper's model."""
    wanted: dict[Role, str] = {"judge": paper_judge(task), **dict.fromkeys(_PLAYED_BY_MODELS, DEFAULT_MODEL)}
    asked = ((role, models_asked(settings, role, task), model) for role, model in wanted.items())
    return [(role, models, model) for role, models, model in asked if models and models != (model,)]
