"""Summarise the demo: tables, the picture of the rewards, and what the rewards did (`soul.pages.verdict`).

With two runs, a further sentence compares their accuracies.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib
from rich.console import Console

from soul.files.metrics_file import read_metrics
from soul.pages.verdict import changed, verdict
from soul.table import Table

matplotlib.use("Agg")
from matplotlib import pyplot  # noqa: E402 - the backend without a display comes first

DRAFT, REFINED, SECONDS = "ditto/reward_draft", "ditto/reward_refined", "timing_s/step"
HELD_BACK = "val-core/hitom/reward/mean@1"
NAMES = {"base": "base (random weights)", "warm": "warm start", "ditto": "after DITTO", "grpo": "after GRPO"}
COLOURS = {"base": "0.6", "warm": "tab:orange", "ditto": "tab:green", "grpo": "tab:blue"}
Accuracies = Mapping[str, Mapping[str, float]]  # name of a model, in the order of training -> `evaluate.evaluate`


@dataclass(frozen=True)
class Step:
    """One training step.

    Attributes:
        draft, refined: mean rewards; `refined` is None if no draft was refined.
        heldback: sampled accuracy on the held-back stories after the step; None if it was not measured.
        seconds: how long the step took, without that measurement.
    """

    number: int
    draft: float
    refined: float | None
    heldback: float | None = None
    seconds: float = 0.0


def read_steps(path: Path) -> list[Step]:
    """The steps of a metrics.jsonl that have a draft reward."""
    return [
        Step(number, numbers[DRAFT], numbers.get(REFINED), numbers.get(HELD_BACK), numbers.get(SECONDS, 0.0))
        for number, numbers in sorted(read_metrics(path).items())
        if DRAFT in numbers
    ]


def sentence(steps: Sequence[Step], accuracies: Accuracies) -> str:
    """The verdict on the rewards, and the change of the accuracy."""
    gaps = {step.number: step.refined - step.draft for step in steps if step.refined is not None}
    text = verdict([step.draft for step in steps], gaps, {})
    if {"warm", "ditto"} <= set(accuracies):
        change, error = _difference(accuracies["ditto"], accuracies["warm"])
        text += f" Sampled accuracy on held-back stories changed by {change:+.3f} (standard error {error:.3f})."
    return text


def comparison(runs: Mapping[str, Sequence[Step]], accuracies: Accuracies) -> str:
    """One sentence: which of two runs is more accurate on the held-back stories, and at what cost."""
    first, second = runs
    costs = [f"{len(s)} steps of {n.upper()} in {sum(x.seconds for x in s):.0f} s" for n, s in runs.items()]
    change, error = _difference(accuracies[first], accuracies[second])
    verdict = changed(change, error, ("more accurate", "less accurate", "not clearly more or less accurate"))
    return (
        f"After the same time ({', '.join(costs)}) the model trained with {first.upper()} is {verdict} on held-back "
        f"stories: {accuracies[first]['sampled']:.3f} against {accuracies[second]['sampled']:.3f} (difference "
        f"{change:+.3f}, standard error {error:.3f})."
    )


def _difference(one: Mapping[str, float], other: Mapping[str, float]) -> tuple[float, float]:
    """The difference of two sampled accuracies, and its standard error."""
    return one["sampled"] - other["sampled"], math.hypot(one["sampled_se"], other["sampled_se"])


def draw(runs: Mapping[str, Sequence[Step]], accuracies: Accuracies, png: Path) -> None:
    """Plot mean rewards, accuracy on held-back stories during training, and that of the models it began with.

    One run is drawn over its steps, several over the seconds of training, because their steps differ in cost.
    """
    figure, axes = pyplot.subplots(figsize=(8, 4.5), layout="constrained")
    for name, steps in runs.items():
        seconds = [sum(step.seconds for step in steps[:count]) for count in range(1, len(steps) + 1)]
        places = seconds if len(runs) > 1 else [float(step.number) for step in steps]
        for what, values, line, colour in (
            ("drafts", [step.draft for step in steps], "o-", COLOURS[name]),
            ("refined", [step.refined for step in steps], "s--", "tab:purple"),
            ("held back", [step.heldback for step in steps], "D", COLOURS[name]),
        ):
            points = [(place, value) for place, value in zip(places, values, strict=True) if value is not None]
            if points:
                label = f"{name.upper()}, {what}"
                axes.plot(*zip(*points, strict=True), line, markersize=4, color=colour, label=label)
    for key in accuracies.keys() - runs.keys():
        sampled = accuracies[key]["sampled"]
        axes.axhline(sampled, color=COLOURS[key], linestyle=":", label=f"held back, {NAMES[key]}: {sampled:.2f}")
    axes.set(xlabel="seconds of training" if len(runs) > 1 else "training step", ylabel="mean reward")
    axes.set(ylim=(-0.02, 1.02), title="DITTO demo: HiToM, tiny model")
    axes.legend(loc="best", fontsize=8)
    png.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(png, dpi=120)
    pyplot.close(figure)


def show(runs: Mapping[str, Sequence[Step]], accuracies: Accuracies, png: Path) -> None:
    """Print the tables and the sentences about the first of the runs, and write the picture."""
    console, first = Console(), next(iter(runs.values()))
    lines = []
    for step in first:
        gap = ("-", "-") if step.refined is None else (f"{step.refined:.3f}", f"{step.refined - step.draft:+.3f}")
        heldback = "" if step.heldback is None else f"{step.heldback:.3f}"
        lines.append([str(step.number), f"{step.draft:.3f}", *gap, heldback])
    head = ["step", "drafts", "refined", "refined - drafts", "held back"]
    console.print(Table(head, lines).rich("Mean reward per step, and accuracy on held-back stories"))
    lines = [
        [NAMES[key], f"{a['sampled']:.3f} ± {a['sampled_se']:.3f}", f"{a['greedy']:.3f}", f"{a['rows']:.0f}"]
        for key, a in accuracies.items()
    ]
    head = ["model", "sampled (T=1)", "greedy", "rows"]
    console.print(Table(head, lines).rich("Accuracy on held-back stories (chance 0.25)"))
    draw(runs, accuracies, png)
    console.print(sentence(first, accuracies), highlight=False)
    if len(runs) == 2:
        console.print(comparison(runs, accuracies), highlight=False)
    console.print(f"Curves: {png}")
