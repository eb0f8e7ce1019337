"""Tables of task files (the paper's tables 4, 6, 7, 9, 10, 12), of judges against people (table 5), and of metrics."""

from collections.abc import Sequence
from dataclasses import astuple
from pathlib import Path
from typing import Any

from soul.compare.evaluations import EvaluationSide
from soul.errors import BadSettings
from soul.evaluate.tables.run_table import ordered
from soul.figures.training import UP, better
from soul.figures.training_run import Named
from soul.judge.audit.agreement_statistics import Estimate
from soul.judge.audit.human_agreement import Agreement
from soul.rows.data_card import sha256
from soul.rows.file_report import groups, rows_by_task, subsets, task_report
from soul.rows.task_files import TaskRow
from soul.suites import soul_v1
from soul.table import NONE, Cell, Table

_ALL = "all"
_CORRELATIONS = ("pearson", "spearman", "kendall")


def metrics_table(evals: Sequence[EvaluationSide]) -> Table | None:
    """A line for each metric of each set, a column for each name; None if no set has metrics beside its score.

    Metrics are over all valid samples of a set, in their own ranges, without intervals.
    """
    body: list[list[Cell]] = []
    data: list[tuple[Any, ...]] = [("set", "metric", "name", "mean", "sha256")]
    hashes = {each.label: each.hashes for each in evals}
    for name in ordered(list(dict.fromkeys(name for each in evals for name in each.results.sets))):
        sets = {each.label: each.results.sets[name] for each in evals if name in each.results.sets}
        for metric in dict.fromkeys(metric for one in sets.values() for metric in one.metrics):
            arrow = better(next(iter(sets.values())).task, metric)
            means = {label: one.metrics[metric] for label, one in sets.items() if metric in one.metrics}
            best = (max if arrow == UP else min)(means.values()) if arrow and len(means) > 1 else None
            shown = {label: Cell(f"{mean:.3f}", "best" if mean == best else "") for label, mean in means.items()}
            body.append([Cell(f"{name}: {metric}{arrow}"), *(shown.get(label, Cell(NONE)) for label in hashes)])
            data += [(name, metric, label, mean, hashes[label]) for label, mean in means.items()]
    if not body:
        return None
    caption = "Every metric beside the score, over all valid samples; an arrow says what is better."
    sources = [source for each in evals for source in each.sources]
    return Table(("metric", *hashes), body, file="metrics", caption=caption, data=data, sources=sources)


def dataset_table(files: Sequence[Path]) -> Table:
    """A line for each task of each file, and for each of its subsets.

    Raises:
        BadRow: a row is invalid, or a file cannot be read.
    """
    head = ("file", "task", "dimension", "subset", "form", "metric", "rows", "groups", "duplicates")
    lengths = ("mean", "median", "P90", "longest")
    body: list[Sequence[str]] = []
    data: list[Sequence[Any]] = [(*head, "mean", "median", "p90", "least", "most")]
    for path in dict.fromkeys(files):
        for task, rows in rows_by_task(str(path)).items():
            metric = rows[0].task.set_headline or rows[0].task.headline
            duplicates = task_report(str(path), task, rows).duplicates
            for subset in subsets(rows):
                words = (path.name, task, soul_v1.DIMENSIONS.get(task, NONE), subset.name or _ALL, _form(rows[0]))
                known = (groups(rows), duplicates) if not subset.name else (None, None)
                counts = [subset.rows, *known]
                spread = subset.characters
                shown = [NONE if count is None else f"{count:,}" for count in counts]
                shown += [f"{value:,.0f}" for value in (spread.mean, spread.median, spread.p90, spread.most)]
                body.append((*words, metric.name, *shown))
                data.append((*words, metric.name, *("" if c is None else c for c in counts), *astuple(spread)))
    titles = (*head, *(f"characters: {name}" for name in lengths))
    words_at = frozenset({1, 2, 3, 4, 5})
    note = "Characters are those of the prompt that the policy sees. Groups are stories, conversations or books."
    sources = [(path.name, path, sha256(path)) for path in dict.fromkeys(files)]
    caption = "Data sets, and their subsets."
    return Table(
        titles, body, notes=[note], words=words_at, file="datasets", caption=caption, data=data, sources=sources
    )


def _form(row: TaskRow) -> str:
    """The form of the policy's answers."""
    if row.task.choices(row.row) is not None:
        return "one of several options"
    return "conversation" if row.task.policy_turns > 1 else "one turn"


def agreement_table(judges: Sequence[Named]) -> Table:
    """A line for each judge and metric, from files of `soul judge agree --json`.

    Raises:
        BadSettings: a file is none.
    """
    head = ("judge", "metric", "pairs", "no verdict", *_CORRELATIONS, "accuracy", "kappa", "people's alpha")
    body: list[list[Cell | str]] = []
    data: list[tuple[Any, ...]] = [("judge", "metric", "pairs", "measure", "value", "low", "high", "sha256")]
    sources = [(judge.name, path, sha256(path)) for judge in judges for path in judge.paths]
    for name, path, hashed in sources:
        try:
            agreement = Agreement.from_json(path.read_bytes())
        except ValueError as error:
            raise BadSettings(
                f"--agreement {name}: {path} is not what `soul judge agree --json FILE` writes "
                f"({str(error).splitlines()[0]})."
            ) from None
        for metric, measured in agreement.metrics.items():
            cells = [_estimate(measured.measures.get(key)) for key in (*_CORRELATIONS, "accuracy", "kappa")]
            ceiling = NONE if measured.human_alpha is None else f"{measured.human_alpha:.2f}"
            body.append([name, metric, f"{measured.n:,}", f"{measured.left_out:,}", *cells, ceiling])
            for key, one in measured.measures.items():
                numbers = ("" if value is None else value for value in (one.value, one.low, one.high))
                data.append((name, metric, measured.n, key, *numbers, hashed))
    caption = "Judges against people on the same pairs of conversations, with 95 % intervals."
    note = (
        "Correlations are over pairs, with the mean of a judge's repeats and of the annotators. People's alpha "
        "(Krippendorff) is how well annotators agree with each other: no judge can be expected to agree better."
    )
    return Table(head, body, notes=[note], file="agreement", caption=caption, data=data, sources=sources)


def _estimate(estimate: Estimate | None) -> Cell:
    if estimate is None or estimate.value is None:
        return Cell(NONE)
    interval = "" if estimate.low is None or estimate.high is None else f"{estimate.low:.2f} to {estimate.high:.2f}"
    return Cell(f"{estimate.value:.2f}", suffix=interval)
