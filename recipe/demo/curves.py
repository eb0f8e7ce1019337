"""The demo's picture: rewards of drafts and refined answers, and accuracy on held-back stories, during training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib

from recipe.demo.steps import Step

matplotlib.use("Agg")
from matplotlib import pyplot  # noqa: E402 - the backend without a display comes first
from matplotlib.ticker import MaxNLocator  # noqa: E402

NAMES = {"base": "base (random weights)", "warm": "warm start", "ditto": "after DITTO", "grpo": "after GRPO"}
COLOURS = {"base": "0.6", "warm": "tab:orange", "ditto": "tab:green", "grpo": "tab:blue"}


def in_order(accuracies: Mapping[str, Mapping[str, float]]) -> list[tuple[str, Mapping[str, float]]]:
    """The accuracies by model, in the order of training."""
    order = [*NAMES, *(key for key in accuracies if key not in NAMES)]
    return [(key, accuracies[key]) for key in order if key in accuracies]


def draw(runs: Mapping[str, Sequence[Step]], accuracies: Mapping[str, Mapping[str, float]], png: str | Path) -> None:
    """Plot mean rewards, accuracy on held-back stories during training, and that of the models it began with.

    One run is drawn over its steps, several over the seconds of training, because their steps differ in cost.
    """
    figure, axes = pyplot.subplots(figsize=(8, 4.5), layout="constrained")
    for name, steps in runs.items():
        after = [sum(step.seconds for step in steps[: i + 1]) for i in range(len(steps))]
        x = after if len(runs) > 1 else [float(step.number) for step in steps]
        label, colour = name.upper(), COLOURS.get(name, "0.3")
        axes.plot(x, [step.draft for step in steps], "o-", markersize=3, color=colour, label=f"{label}, drafts")
        refined = [(at, step.refined) for at, step in zip(x, steps, strict=True) if step.refined is not None]
        if refined:
            axes.plot(*zip(*refined, strict=True), "s--", markersize=3, color="tab:purple", label=f"{label}, refined")
        heldback = [(at, step.heldback) for at, step in zip(x, steps, strict=True) if step.heldback is not None]
        if heldback:
            axes.plot(*zip(*heldback, strict=True), "D", color=colour, markeredgecolor="k", label=f"{label}, held back")
    for key, accuracy in in_order(accuracies):
        if key not in runs:
            label = f"held back, {NAMES.get(key, key)}: {accuracy['sampled']:.2f}"
            axes.axhline(accuracy["sampled"], color=COLOURS.get(key, "0.3"), linestyle=":", label=label)
    axes.set(xlabel="seconds of training" if len(runs) > 1 else "training step", ylabel="mean reward")
    axes.set(ylim=(-0.02, 1.02), title="DITTO demo: HiToM, tiny model")
    if len(runs) == 1:
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.legend(loc="best", fontsize=8)
    Path(png).parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(png, dpi=120)
    pyplot.close(figure)
