"""Summarise the demo: two tables, the curves, and one sentence about the change of the reward.

Reads the run's metrics (one JSON object per step) and the accuracies that `recipe.demo.evaluate` wrote. The sentence
compares the first and the last steps and gives a standard error, so it also reports a flat or falling reward.

    python -m recipe.demo.summary metrics.jsonl accuracies.json --png curves.png
"""

from __future__ import annotations

import json
import math
import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib
from rich.console import Console
from rich.table import Table

from recipe.demo.accuracies import read_accuracies
from soul.cli.arguments import existing_file, output_file
from soul.cli.error_border import Parser, reports_errors
from soul.errors import SoulError

matplotlib.use("Agg")
from matplotlib import pyplot  # noqa: E402 - the backend without a display comes first
from matplotlib.ticker import MaxNLocator  # noqa: E402

DRAFT, REFINED = "ditto/reward_draft", "ditto/reward_refined"
NAMES = {"base": "base (random weights)", "warm": "warm start", "ditto": "after DITTO"}
COLOURS = {"base": "0.6", "warm": "tab:orange", "ditto": "tab:green"}
CERTAIN = 2.0  # standard errors that a difference must exceed to be reported as a change


class BadMetrics(SoulError):
    """A file is not a metrics.jsonl."""


@dataclass(frozen=True)
class Step:
    """Mean rewards of one training step; `refined` is None if no draft was refined."""

    number: int
    draft: float
    refined: float | None


@dataclass(frozen=True)
class Trend:
    """The first quarter of the steps against the last: means, and the standard error of their difference."""

    first: float
    last: float
    error: float
    slope: float  # per step, least squares
    steps_a_quarter: int

    @property
    def change(self) -> float:
        return self.last - self.first

    @property
    def word(self) -> str:
        """ "rose", "fell", or "did not clearly change"."""
        if abs(self.change) <= max(CERTAIN * self.error, 1e-9):
            return "did not clearly change"
        return "rose" if self.change > 0 else "fell"


def read_steps(path: str | Path) -> list[Step]:
    """The steps of a metrics.jsonl that have a draft reward, in order; of repeated steps (a resumed run) the last line.

    Raises:
        BadMetrics: a line is not a JSON object.
    """
    by_step: dict[int, Step] = {}
    for number, line in enumerate(Path(path).read_text(encoding="utf-8", errors="replace").splitlines(), start=1):
        try:
            record = dict(json.loads(line)) if line.strip() else {}
        except (ValueError, TypeError) as error:
            raise BadMetrics(
                f"{path}: line {number} is not a JSON object ({error}). Name a run's metrics.jsonl."
            ) from None
        draft = record.get(DRAFT)
        if draft is not None and math.isfinite(draft):
            refined = record.get(REFINED)
            if refined is not None and not math.isfinite(refined):
                refined = None
            by_step[int(record["step"])] = Step(int(record["step"]), draft, refined)
    return [by_step[number] for number in sorted(by_step)]


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
    return Trend(statistics.fmean(first), statistics.fmean(last), error, slope, n)


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


def _accuracy_table(accuracies: Mapping[str, Mapping[str, float]]) -> Table:
    table = Table(title="Accuracy on held-back stories (chance 0.25)")
    for column in ("model", "sampled (T=1)", "greedy", "rows"):
        table.add_column(column, justify="left" if column == "model" else "right")
    for key, accuracy in _named(accuracies):
        sampled = f"{accuracy['sampled']:.3f} ± {accuracy.get('sampled_se', 0.0):.3f}"
        table.add_row(NAMES.get(key, key), sampled, f"{accuracy['greedy']:.3f}", f"{accuracy.get('rows', 0):.0f}")
    return table


def _step_table(steps: Sequence[Step]) -> Table:
    table = Table(title="Mean reward per step")
    for column in ("step", "drafts", "refined", "refined - drafts"):
        table.add_column(column, justify="right")
    for step in steps:
        gap = ("-", "-") if step.refined is None else (f"{step.refined:.3f}", f"{step.refined - step.draft:+.3f}")
        table.add_row(str(step.number), f"{step.draft:.3f}", *gap)
    return table


def _named(accuracies: Mapping[str, Mapping[str, float]]) -> list[tuple[str, Mapping[str, float]]]:
    order = [*NAMES, *(key for key in accuracies if key not in NAMES)]
    return [(key, accuracies[key]) for key in order if key in accuracies]


def draw(steps: Sequence[Step], accuracies: Mapping[str, Mapping[str, float]], png: str | Path) -> None:
    """Plot the mean rewards of drafts and refined answers per step, and the sampled accuracies as horizontal lines."""
    figure, axes = pyplot.subplots(figsize=(8, 4.5), layout="constrained")
    axes.plot([s.number for s in steps], [s.draft for s in steps], "o-", color="tab:blue", label="drafts")
    refined = [s for s in steps if s.refined is not None]
    axes.plot([s.number for s in refined], [s.refined for s in refined], "s--", color="tab:purple", label="refined")
    for key, accuracy in _named(accuracies):
        label = f"held-back accuracy, {NAMES.get(key, key)}: {accuracy['sampled']:.2f}"
        axes.axhline(accuracy["sampled"], color=COLOURS.get(key, "0.3"), linestyle=":", label=label)
    axes.set(xlabel="training step", ylabel="mean reward", ylim=(-0.02, 1.02), title="DITTO demo: HiToM, tiny model")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.legend(loc="best", fontsize=8)
    Path(png).parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(png, dpi=120)
    pyplot.close(figure)


def show(metrics: Path, accuracies: Path, png: Path) -> None:
    """Print both tables and the sentence, and write the plot."""
    steps, measured = read_steps(metrics), read_accuracies(accuracies)
    console = Console()
    console.print(_step_table(steps))
    console.print(_accuracy_table(measured))
    draw(steps, measured, png)
    console.print(sentence(steps, measured), highlight=False)
    console.print(f"Curves: {png}")


@reports_errors
def main(arguments: Sequence[str] | None = None) -> None:
    """Summarise a run."""
    parser = Parser(prog="python -m recipe.demo.summary", description=__doc__)
    parser.add_argument("metrics", type=existing_file, help="metrics.jsonl of the run")
    parser.add_argument("accuracies", type=existing_file, help="JSON written by recipe.demo.evaluate --out")
    parser.add_argument("--png", type=output_file, default="curves.png")
    args = parser.parse_args(arguments)
    show(args.metrics, args.accuracies, args.png)


if __name__ == "__main__":
    sys.exit(main())
