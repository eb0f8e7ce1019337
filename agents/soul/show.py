"""`soul show RUN [RUN ...]`: summarise training runs and evaluations in the terminal, also while they run.

    soul show outputs/ditto-1
    soul show outputs

A RUN is a run's folder, or one above several, which are listed, the newest first.
"""

import time
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.text import Text

from soul.cli.arguments import existing_folder
from soul.cli.error_border import Parser, reports_errors
from soul.errors import SoulError, one_line
from soul.evaluate.numbers.results import summarise_run
from soul.evaluate.run.progress import duration
from soul.evaluate.run.run_folder import EvaluationRun
from soul.evaluate.tables.run_table import cautions, columns_of, judged_by, run_table, score
from soul.judge.call.usage import Usage
from soul.judge.ledger import money
from soul.metrics.intervals import Interval
from soul.pages.catalogue import Found, find
from soul.pages.facts import NotARun, RunFacts, bucketed, facts, kind_of
from soul.table import NONE, Table, terminal

BLOCKS = "▁▂▃▄▅▆▇█"
SCALES = "Scores of evaluations are on the card's scale, those of training runs are rewards of the last step's drafts."


def sparkline(values: Sequence[float | None], low: float, high: float) -> str:
    """A character for each value, from the lowest block to the highest; a blank where there is none."""
    top, width = len(BLOCKS) - 1, (high - low) or 1.0
    return "".join(" " if value is None else BLOCKS[round(top * (value - low) / width)] for value in values)


def show(place: Path, console: Console) -> None:
    """Print the run in this folder, or a list of those below it.

    Raises:
        NotARun: there is none. SoulError: its files are damaged.
    """
    if kind_of(place) is None:
        if not (found := find(place)):
            raise NotARun(f"{place} has no training run and no evaluation. Pass a run's folder, or one above several.")
        return console.print(listed(found).fitting(console.width, "soul show RUN shows them").rich(str(place)))
    run = facts(place)
    what = ", ".join(run.tasks) if run.kind == "training" else run.name
    done = f"{_done(run)} steps" if run.kind == "training" else ""  # above its table, an evaluation has a live count
    took = "" if run.seconds is None else duration(run.seconds)
    parts = [" ".join(filter(None, [run.kind, run.objective, what])), run.state, done, took, f"changed {_age(run)} ago"]
    console.print(Text(f"{place}\n{', '.join(filter(None, parts))}"), soft_wrap=True)
    if run.cause:
        console.print(Text(run.cause, style="bold red"))
    return _show_training(run, console) if run.kind == "training" else _show_evaluation(place, console)


def _show_training(run: RunFacts, console: Console) -> None:
    if run.verdict:
        console.print(Text(run.verdict))
    for name, curve in run.curves.items():  # rewards share their scale
        shared = [values for other, values in run.curves.items() if (other == "loss") == (name == "loss")]
        known = [value for values in shared for value in values if value is not None]
        blocks = sparkline(bucketed(curve, console.width - 38), min(known), max(known))
        interval = _interval(run.interval) if name == "draft" else ""
        console.print(Text(f"{name:<10} {blocks} {run.last[name]:.3f} {interval}"), no_wrap=True)
    saved = ", ".join(f"{step:,}" for step in run.checkpoints) or "none"
    console.print(Text(f"Cost: {_cost(run)}. Checkpoints: {saved}."))


def _show_evaluation(place: Path, console: Console) -> None:
    run = EvaluationRun.load(place)
    results = summarise_run(run)
    title = "\n".join([f"{len(run.samples):,} of {sum(run.wanted.values()):,} samples", *judged_by(run, results)])
    console.print(run_table(results, columns_of(run.suite), width=console.width).rich(title))
    for caution in cautions(run, results):
        console.print(caution, markup=False, highlight=False)


def listed(found: Sequence[Found]) -> Table:
    """The runs, the newest first; what cannot be read is a note."""
    runs: list[tuple[str, RunFacts]] = []
    notes = [SCALES]
    for one in found:
        try:
            runs.append((one.path, facts(one.place)))
        except SoulError as error:
            notes.append(one_line(error))
    runs.sort(key=lambda pair: pair[1].changed, reverse=True)
    notes += [f"{path}: {run.cause}" for path, run in runs if run.cause]
    head = ("run", "kind", "state", "done", "last score [95 %]", "cost", "alarms", "changed")
    lines = [
        (path, run.kind, run.state, _done(run), _score(run), _cost(run), str(len(run.alarms) or ""), f"{_age(run)} ago")
        for path, run in runs
    ]
    return Table(head, lines, notes=notes, words=frozenset({1, 2}), whole=frozenset({1, 2}), optional=(5, 6, 3, 1))


def _score(run: RunFacts) -> str:
    if run.kind == "evaluation":
        return score(run.score, run.interval)
    return NONE if run.score is None else f"{run.score:.3f} {_interval(run.interval)}"


def _interval(interval: Interval | None) -> str:
    return f"[{interval[0]:.3f}, {interval[1]:.3f}]" if interval else f"[{NONE}]"


def _done(run: RunFacts) -> str:
    done = NONE if run.done is None else f"{run.done:,}"
    return f"{done} of {run.total:,}" if run.total else done


def _cost(run: RunFacts) -> str:
    return NONE if run.cost_usd is None else money(Usage(requests=1, cost_usd=run.cost_usd, unpriced=run.unpriced))


def _age(run: RunFacts) -> str:
    return duration(max(0.0, time.time() - run.changed))


@reports_errors
def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command."""
    parser = Parser(prog="soul show", description=__doc__)
    parser.add_argument(
        "runs", nargs="+", type=existing_folder, metavar="RUN", help="a run's folder, or one above several"
    )
    for place in parser.parse_args(arguments).runs:
        show(place, terminal())
