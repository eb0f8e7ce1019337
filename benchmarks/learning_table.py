"""The tables and the curves of `benchmarks.learning`: means over seeds, with what a few seeds allow to say.

Intervals are percentile bootstraps over seeds. A difference between two arms is tested by an exact permutation test
over all ways to deal the runs to the two arms: the smallest possible p is 0.10 with three seeds each, 0.008 with five.
"""

from __future__ import annotations

import math
import re
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Protocol

import matplotlib
import numpy as np
from scipy.stats import permutation_test

from benchmarks.learning_worlds import WORLDS
from soul.evaluate.numbers.bootstrap import percentile_interval

matplotlib.use("Agg")
matplotlib.rcParams["svg.hashsalt"] = "ditto"  # the same numbers give the same file
from matplotlib import pyplot  # noqa: E402 - the backend without a display comes first

BASELINE = "grpo"
SECONDARY = "ditto/secondary/"
RESAMPLES = 10_000


class Run(Protocol):
    """What the table needs of a run (`benchmarks.learning.Result`)."""

    regime: str
    task: str
    how: str
    arm: str
    seed: int
    drafts: list[float]
    refined: list[float | None]
    tokens: list[float]
    sampled: float
    secondary: dict[str, list[float | None]]


def _world(run: Run) -> str:
    """What two runs must share to be compared."""
    return f"{run.regime}, {run.task}, {run.how}"


def area(run: Run) -> float:
    """Mean reward of the drafts over all steps: how fast and how far a run learned, in one number."""
    return statistics.fmean(run.drafts)


def at_tokens(run: Run, budget: float) -> float:
    """Mean reward of the drafts at the last step within this many sampled tokens."""
    within = [reward for reward, tokens in zip(run.drafts, run.tokens, strict=True) if tokens <= budget]
    return within[-1] if within else run.drafts[0]


def largest_fall(run: Run) -> float:
    """The largest fall of the drafts' reward from one step to the next; 0 if it never falls."""
    return max([0.0, *(a - b for a, b in zip(run.drafts, run.drafts[1:], strict=False))])


def p_value(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """Two-sided p of a difference of means, over all ways to deal the values to two groups of these sizes."""
    if min(len(ours), len(theirs)) < 2:
        return math.nan
    test = permutation_test((ours, theirs), lambda x, y, axis: np.mean(x, axis) - np.mean(y, axis), vectorized=True)
    return float(test.pvalue)


def interval(values: Sequence[float]) -> tuple[float, float]:
    """95 % of the means of resampled seeds."""
    chosen = np.random.default_rng(0).integers(len(values), size=(RESAMPLES, len(values)))
    return percentile_interval(np.asarray(values)[chosen].mean(1))


def at_end(values: Sequence[float | None]) -> float:
    """Mean over the last three steps that have a value; NaN if none has."""
    known = [value for value in values if value is not None][-3:]
    return statistics.fmean(known) if known else math.nan


def write_table(runs: Sequence[Run]) -> str:
    """One Markdown table for each regime, task and way to train."""
    by_world: defaultdict[str, list[Run]] = defaultdict(list)
    for run in runs:
        by_world[_world(run)].append(run)
    lines: list[str] = []
    for world, of_world in by_world.items():
        lines += [*_world_table(world, of_world), ""]
    return "\n".join(lines)


def _world_table(world: str, runs: Sequence[Run]) -> Iterator[str]:
    budget = min(run.tokens[-1] for run in runs)
    minor = WORLDS[runs[0].task, runs[0].regime].secondary
    columns = [
        *("arm", "seeds", "held back (95 %)", "worst seed", "drafts, all steps", "p against grpo"),
        *("at equal tokens", "refined at the end", "largest fall", *minor, "CPU s a step"),
    ]
    yield f"**{world}**, {len(runs[0].drafts)} steps; the column of equal tokens stops at {budget:,.0f} sampled."
    yield ""
    yield f"| {' | '.join(columns)} |"
    yield "|---" * len(columns) + "|"
    arms = {run.arm: [other for other in runs if other.arm == run.arm] for run in runs}
    for arm in sorted(arms, key=lambda name: -statistics.fmean(map(area, arms[name]))):
        of_arm = arms[arm]
        held, areas = [run.sampled for run in of_arm], [area(run) for run in of_arm]
        low, high = interval(held)
        p = math.nan if arm == BASELINE else p_value(areas, [area(run) for run in arms.get(BASELINE, [])])
        cells = [
            *(arm, str(len(of_arm)), f"{statistics.fmean(held):.3f} ({low:.3f} to {high:.3f})", f"{min(held):.3f}"),
            *(f"{statistics.fmean(areas):.3f}", _number(p)),
            *(_mean(at_tokens(run, budget) for run in of_arm), _mean(at_end(run.refined) for run in of_arm)),
            f"{max(map(largest_fall, of_arm)):.2f}",
            *(
                _mean(at_end(run.secondary.get(f"{SECONDARY}{run.task}/{name}", [])) for run in of_arm)
                for name in minor
            ),
            _mean((at_end(run.secondary.get("timing_s/cpu", [])) for run in of_arm), digits=1),
        ]
        yield f"| {' | '.join(cells)} |"


def _number(value: float, digits: int = 3) -> str:
    return "" if math.isnan(value) else f"{value:.{digits}f}"


def _mean(values: Iterable[float], digits: int = 3) -> str:
    return _number(statistics.fmean(values), digits)


def write_figures(runs: Sequence[Run], folder: Path) -> list[Path]:
    """Draw each world to a file of its own: drafts, refined answers, and what the scalar reward does not contain."""
    by_world: defaultdict[str, list[Run]] = defaultdict(list)
    for run in runs:
        by_world[_world(run)].append(run)
    files = [folder / f"learning-{re.sub(r'[^a-z_]+', '-', world)}.svg" for world in by_world]
    for file, (world, of_world) in zip(files, by_world.items(), strict=True):
        _draw(of_world, world, file)
    return files


def _draw(runs: Sequence[Run], world: str, file: Path) -> None:
    panels: dict[str, Callable[[Run], Sequence[float | None]]] = {
        "reward of drafts": lambda run: run.drafts,
        "reward of refined answers": lambda run: run.refined,
    }
    for name in WORLDS[runs[0].task, runs[0].regime].secondary:
        panels[name] = lambda run, name=name: run.secondary.get(f"{SECONDARY}{run.task}/{name}", [])  # type: ignore[misc]
    figure, axes = pyplot.subplots(1, len(panels), figsize=(5.5 * len(panels), 4), squeeze=False, layout="constrained")
    for panel, (title, values) in zip(axes[0], panels.items(), strict=True):
        for number, arm in enumerate(dict.fromkeys(run.arm for run in runs)):
            curves = [[math.nan if v is None else v for v in values(run)] for run in runs if run.arm == arm]
            steps = min(map(len, curves))
            table = np.array([curve[:steps] for curve in curves], dtype=float)
            if not steps or np.isnan(table).all():
                continue
            colour, x = f"C{number % 10}", np.arange(1, steps + 1)
            panel.plot(x, table.mean(0), color=colour, label=f"{arm} ({len(curves)})")
            if len(curves) > 1:
                panel.fill_between(x, *np.array([interval(list(at)) for at in table.T]).T, color=colour, alpha=0.12)
        panel.set(xlabel="step", title=title)
        panel.grid(alpha=0.25)
    axes[0, 0].legend(fontsize=7)
    figure.suptitle(f"{world}: means over seeds, 95 % of resampled means", fontsize=9)
    file.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file, metadata={"Date": None})
    pyplot.close(figure)
