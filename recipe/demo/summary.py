"""Summarise the demo: tables, the curves, and a sentence or two about what the rewards did.

Reads the metrics of one or more runs (one JSON object per step) and the accuracies that `recipe.demo.evaluate` wrote.
The sentence compares the first and the last steps and gives a standard error, so it also reports a flat or falling
reward. With two runs, a second sentence compares their accuracies.

    python -m recipe.demo.summary ditto=run/metrics.jsonl grpo=grpo/metrics.jsonl accuracies.json --png curves.png
"""

from __future__ import annotations

import math
import statistics
import sys
from argparse import ArgumentTypeError
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from recipe.demo.accuracies import read_accuracies
from recipe.demo.curves import NAMES, draw, in_order
from recipe.demo.steps import Step, read_steps
from soul.cli.arguments import existing_file, output_file
from soul.cli.error_border import Parser, reports_errors

CERTAIN = 2.0  # standard errors that a difference must exceed to be reported as a change


@dataclass(frozen=True)
class Trend:
    """The first quarter of the steps against the last: means, and the standard error of their difference."""

    first: float
    last: float
    error: float
    slope: float  # per step, least squares

    @property
    def change(self) -> float:
        return self.last - self.first

    @property
    def word(self) -> str:
        """ "rose", "fell", or "did not clearly change"."""
        if abs(self.change) <= max(CERTAIN * self.error, 1e-9):
            return "did not clearly change"
        return "rose" if self.change > 0 else "fell"


def trend(values: Sequence[float]) -> Trend | None:
    """First against last quarter (two steps at least each); None for fewer than four steps.

    The error treats the spread inside each quarter as noise. A trend inside a quarter increases it, so the test
    rather misses a rise than reports a false one.
    """
    if len(values) < 4:
        return None
    n = max(2, len(values) // 4)
    first, last = values[:n], values[-n:]
    error = math.sqrt((statistics.variance(first) + statistics.variance(last)) / n)
    slope = statistics.linear_regression(range(len(values)), values).slope
    return Trend(statistics.fmean(first), statistics.fmean(last), error, slope)


def sentence(steps: Sequence[Step], accuracies: Mapping[str, Mapping[str, float]]) -> str:
    """One sentence: did the reward rise?"""
    drafts = trend([step.draft for step in steps])
    if drafts is None:
        return f"Only {len(steps)} steps have a reward: too few to tell whether it rose."
    text = (
        f"The drafts' mean reward {drafts.word} over {len(steps)} steps: {drafts.first:.3f} in the first quarter, "
        f"{drafts.last:.3f} in the last (change {drafts.change:+.3f}, standard error {drafts.error:.3f}, "
        f"slope {drafts.slope:+.4f} a step)"
    )
    if "warm" in accuracies and "ditto" in accuracies:
        warm, ditto = accuracies["warm"], accuracies["ditto"]
        change = ditto["sampled"] - warm["sampled"]
        error = math.hypot(warm.get("sampled_se", 0.0), ditto.get("sampled_se", 0.0))
        text += f"; sampled accuracy on held-back stories changed by {change:+.3f} (standard error {error:.3f})"
    return text + "."


def comparison(runs: Mapping[str, Sequence[Step]], accuracies: Mapping[str, Mapping[str, float]]) -> str:
    """One sentence: which of two runs is more accurate on the held-back stories, and at what cost."""
    first, second = runs
    costs = [f"{len(s)} steps of {n.upper()} in {sum(x.seconds for x in s):.0f} s" for n, s in runs.items()]
    one, two = accuracies[first], accuracies[second]
    change, error = one["sampled"] - two["sampled"], math.hypot(one.get("sampled_se", 0.0), two.get("sampled_se", 0.0))
    verdict = "more accurate" if change > 0 else "less accurate"
    if abs(change) <= CERTAIN * error:
        verdict = "not clearly more or less accurate"
    return (
        f"After the same time ({costs[0]}, {costs[1]}) the model trained with {first.upper()} is {verdict} on "
        f"held-back stories: {one['sampled']:.3f} against {two['sampled']:.3f} (difference {change:+.3f}, standard "
        f"error {error:.3f})."
    )


def _accuracy_table(accuracies: Mapping[str, Mapping[str, float]]) -> Table:
    table = Table(title="Accuracy on held-back stories (chance 0.25)")
    for column in ("model", "sampled (T=1)", "greedy", "rows"):
        table.add_column(column, justify="left" if column == "model" else "right")
    for key, accuracy in in_order(accuracies):
        sampled = f"{accuracy['sampled']:.3f} ± {accuracy.get('sampled_se', 0.0):.3f}"
        table.add_row(NAMES.get(key, key), sampled, f"{accuracy['greedy']:.3f}", f"{accuracy.get('rows', 0):.0f}")
    return table


def _step_table(steps: Sequence[Step]) -> Table:
    table = Table(title="Mean reward per step, and accuracy on held-back stories")
    for column in ("step", "drafts", "refined", "refined - drafts", "held back"):
        table.add_column(column, justify="right")
    for step in steps:
        gap = ("-", "-") if step.refined is None else (f"{step.refined:.3f}", f"{step.refined - step.draft:+.3f}")
        heldback = "" if step.heldback is None else f"{step.heldback:.3f}"
        table.add_row(str(step.number), f"{step.draft:.3f}", *gap, heldback)
    return table


def show(metrics: Mapping[str, Path], accuracies: Path, png: Path) -> None:
    """Print the tables and the sentences, and write the plot.

    Args:
        metrics: name of a run -> its metrics.jsonl; the first is the one that is described.
    """
    runs, measured = {name: read_steps(path) for name, path in metrics.items()}, read_accuracies(accuracies)
    console = Console()
    first = next(iter(runs.values()))
    console.print(_step_table(first))
    console.print(_accuracy_table(measured))
    draw(runs, measured, png)
    console.print(sentence(first, measured), highlight=False)
    if len(runs) == 2 and runs.keys() <= measured.keys():
        console.print(comparison(runs, measured), highlight=False)
    console.print(f"Curves: {png}")


@reports_errors
def main(arguments: Sequence[str] | None = None) -> None:
    """Summarise runs."""
    parser = Parser(prog="python -m recipe.demo.summary", description=__doc__)
    parser.add_argument("metrics", nargs="+", type=_named_file, metavar="NAME=FILE", help="metrics.jsonl of a run")
    parser.add_argument("accuracies", type=existing_file, help="JSON written by recipe.demo.evaluate --out")
    parser.add_argument("--png", type=output_file, default="curves.png")
    args = parser.parse_args(arguments)
    show(dict(args.metrics), args.accuracies, args.png)


def _named_file(text: str) -> tuple[str, Path]:
    """Parse NAME=FILE."""
    name, _, file = text.partition("=")
    if not name or not file:
        raise ArgumentTypeError(f"{text!r}: write NAME=FILE, such as ditto=outputs/demo/run/metrics.jsonl")
    return name, existing_file(file)


if __name__ == "__main__":
    sys.exit(main())
