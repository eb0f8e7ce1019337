"""The tables and the curves of `benchmarks.learning`: means over seeds, with what a few seeds allow to say.

Intervals are percentile bootstraps over seeds. A difference between two arms is tested by an exact permutation test
over all ways to deal the runs to the two arms: the smallest possible p is 0.10 with three seeds each, 0.008 with five.
"""

from __future__ import annotations

import math
import re
import statistics
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

import matplotlib
import numpy as np
from scipy.stats import permutation_test

from benchmarks.learning_worlds import WORLDS

matplotlib.use("Agg")
matplotlib.rcParams["svg.hashsalt"] = "ditto"  # the same numbers give the same file
from matplotlib import pyplot  # noqa: E402 - the backend without a display comes first

BASELINE = "grpo"
SECONDARY = "ditto/secondary/"
CPU = "timing_s/cpu"
RESAMPLES = 10_000


class Run(Protocol):
    """What the table needs of a run (`benchmarks.learning.Result`)."""

    regime: str
    task: str
    how: str
    arm: str
    seed: int
    steps: int
    start: str
    drafts: list[float]
    refined: list[float | None]
    gap: list[float | None]
    tokens: list[float]
    sampled: float
    heldback: list[tuple[int, float, float]]
    secondary: dict[str, list[float | None]]


def _world(run: Run) -> str:
    """What two runs must share to be compared."""
    return f"{run.regime}, {run.task}, {run.steps} steps, {run.how}"


def area(run: Run) -> float:
    """Mean reward of the drafts over all steps: how fast and how far a run learned, in one number."""
    return statistics.fmean(run.drafts)


def at_tokens(run: Run, budget: float) -> float:
    """Mean reward of the drafts at the last step within this many sampled tokens."""
    within = [reward for reward, tokens in zip(run.drafts, run.tokens, strict=True) if tokens <= budget]
    return within[-1] if within else run.drafts[0]


def at_cpu_time(run: Run, seconds: float) -> float:
    """Mean reward of the drafts in the last three steps that ended within this much CPU time; NaN if none did."""
    spent = np.cumsum(np.array(run.secondary.get(CPU, []), dtype=float))
    return at_end(run.drafts[: int((spent <= seconds).sum())])


def largest_fall(run: Run) -> float:
    """The largest fall of the drafts' reward from one step to the next; 0 if it never falls."""
    return max([0.0, *(a - b for a, b in zip(run.drafts, run.drafts[1:], strict=False))])


def p_value(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """Two-sided p of a difference of means, over all ways to deal the values to two groups of these sizes."""
    if min(len(ours), len(theirs)) < 2:
        return math.nan
    test = permutation_test(
        (ours, theirs), lambda x, y, axis: np.mean(x, axis) - np.mean(y, axis), vectorized=True, n_resamples=np.inf
    )
    return float(test.pvalue)


def interval(values: Sequence[float]) -> tuple[float, float]:
    """95 % of the means of resampled seeds."""
    chosen = np.random.default_rng(0).integers(len(values), size=(RESAMPLES, len(values)))
    low, high = np.quantile(np.asarray(values)[chosen].mean(1), (0.025, 0.975))
    return float(low), float(high)


def at_end(values: Sequence[float | None]) -> float:
    """Mean over the last three steps that have a value; NaN if none has."""
    known = [value for value in values if value is not None][-3:]
    return statistics.fmean(known) if known else math.nan


def write_table(runs: Sequence[Run]) -> str:
    """Markdown tables: two for each world and number of steps, one of a task's regimes, and one at equal CPU time."""
    tables = [
        part(world, of_world)
        for world, of_world in _grouped(runs, _world).items()
        for part in (_steps_table, _seeds_table)
    ]
    together = _grouped(runs, lambda run: f"{run.task}, {run.steps} steps, {run.how}")
    tables += [
        _regimes_table(name, alike) for name, alike in together.items() if len({run.regime for run in alike}) > 1
    ]
    timed = [run for run in runs if run.secondary.get(CPU)]
    tables += [
        _time_table(of_world) for of_world in _grouped(timed, lambda run: (run.regime, run.task, run.how)).values()
    ]
    return "\n".join(line for table in tables for line in (*table, ""))


def _grouped(runs: Iterable[Run], key: Callable[[Run], Hashable]) -> dict[Any, list[Run]]:
    groups: defaultdict[Hashable, list[Run]] = defaultdict(list)
    for run in runs:
        groups[key(run)].append(run)
    return dict(groups)


def _header(columns: Sequence[str]) -> str:
    return f"| {' | '.join(columns)} |\n" + "|---" * len(columns) + "|"


def _steps_table(world: str, runs: Sequence[Run]) -> Iterator[str]:
    budget = min(run.tokens[-1] for run in runs)
    minor = WORLDS[runs[0].task, runs[0].regime].secondary
    yield f"**{world}**; the column of equal tokens stops at {budget:,.0f} sampled.{_several_starts(runs)}\n"
    yield _header(
        [
            *("arm", "seeds", "held back (95 %)", "p", "worst seed", "drafts, all steps", "p"),
            *("at equal tokens", "refined at the end", "largest fall", *minor, "CPU s a step"),
        ]
    )
    arms = _grouped(runs, lambda run: run.arm)
    rivals = arms.get(BASELINE, [])
    for arm, of_arm in sorted(arms.items(), key=lambda item: -statistics.fmean(map(area, item[1]))):
        held, areas = [run.sampled for run in of_arm], [area(run) for run in of_arm]
        low, high = interval(held)
        p_held, p_area = p_value(held, [run.sampled for run in rivals]), p_value(areas, list(map(area, rivals)))
        if arm == BASELINE:
            p_held = p_area = math.nan
        cells = [
            *(arm, str(len(of_arm)), f"{statistics.fmean(held):.3f} ({low:.3f} to {high:.3f})", _number(p_held)),
            *(f"{min(held):.3f}", f"{statistics.fmean(areas):.3f}", _number(p_area)),
            *(_mean(at_tokens(run, budget) for run in of_arm), _mean(at_end(run.refined) for run in of_arm)),
            f"{max(map(largest_fall, of_arm)):.2f}",
            *(
                _mean(at_end(run.secondary.get(f"{SECONDARY}{run.task}/{name}", [])) for run in of_arm)
                for name in minor
            ),
            _mean((statistics.fmean(run.secondary.get(CPU, [math.nan])) for run in of_arm), digits=1),
        ]
        yield f"| {' | '.join(cells)} |"


def _seeds_table(world: str, runs: Sequence[Run]) -> Iterator[str]:
    """Each run on the held-back rows: the best validation and the last one. A large difference is a run that fell."""
    if not any(len(run.heldback) > 1 for run in runs):
        return  # no validation on the way
    yield f"**{world}, seed by seed**: held back at best, and at the end.\n"
    seeds = sorted({run.seed for run in runs})
    yield _header(["arm", *(f"seed {seed}" for seed in seeds)])
    for arm, of_arm in _grouped(runs, lambda run: run.arm).items():
        best = {run.seed: max([run.sampled, *(accuracy for _, accuracy, _ in run.heldback)]) for run in of_arm}
        of_seed = {run.seed: f"{best[run.seed]:.2f}, {run.sampled:.2f}" for run in of_arm}
        yield f"| {' | '.join([arm, *(of_seed.get(seed, '') for seed in seeds)])} |"


def _regimes_table(name: str, runs: Sequence[Run]) -> Iterator[str]:
    """What the arms reach under several conditions: mean over seeds, and the worst seed."""
    arms = list(_grouped(runs, lambda run: run.arm))
    yield f"**{name}, regime by regime**: held back, mean (worst seed); mean reward of the drafts of all steps.\n"
    yield _header(["regime", *(f"{arm}: held back" for arm in arms), *(f"{arm}: drafts" for arm in arms)])
    for regime, of_regime in _grouped(runs, lambda run: run.regime).items():
        by_arm = _grouped(of_regime, lambda run: run.arm)
        held = {arm: [run.sampled for run in by_arm.get(arm, [])] for arm in arms}
        ends = (f"{statistics.fmean(values):.3f} ({min(values):.3f})" if values else "" for values in held.values())
        drafts = (_mean(map(area, by_arm[arm])) if arm in by_arm else "" for arm in arms)
        yield f"| {' | '.join([regime, *ends, *drafts])} |"


def _several_starts(runs: Sequence[Run]) -> str:
    """A sentence if the arms of a seed did not start from the same weights, as after runs on several machines."""
    starts = _grouped(runs, lambda run: run.seed)
    seeds = [str(seed) for seed, of_seed in sorted(starts.items()) if len({run.start for run in of_seed}) > 1]
    return f" Not all arms of seed {', '.join(seeds)} have the same warm start." if seeds else ""


def _time_table(runs: Sequence[Run]) -> Iterator[str]:
    """Each arm's longest runs at four times, up to the time at which the first arm ends."""
    longest = {
        arm: [run for run in of_arm if run.steps == max(other.steps for other in of_arm)]
        for arm, of_arm in _grouped(runs, lambda run: run.arm).items()
    }
    spent = {arm: [sum(filter(None, run.secondary[CPU])) for run in of_arm] for arm, of_arm in longest.items()}
    end = min(map(statistics.fmean, spent.values()))
    times = [end * share for share in (0.25, 0.5, 0.75, 1.0)]
    yield f"**{runs[0].regime}, {runs[0].task}, {runs[0].how}**: reward of the drafts after equal CPU time.\n"
    yield _header(["arm", "seeds", "steps", *(f"{time:.0f} s" for time in times)])
    for arm, of_arm in longest.items():
        rewards = (_mean(at_cpu_time(run, time) for run in of_arm) for time in times)
        yield f"| {' | '.join([arm, str(len(of_arm)), str(of_arm[0].steps), *rewards])} |"


def _number(value: float, digits: int = 3) -> str:
    return "" if math.isnan(value) else f"{value:.{digits}f}"


def _mean(values: Iterable[float], digits: int = 3) -> str:
    return _number(statistics.fmean(values), digits)


def write_figures(runs: Sequence[Run], folder: Path) -> list[Path]:
    """Draw each table to a file of its own: drafts, refined answers, gap, and what the reward does not contain."""
    by_world = _grouped(runs, _world)
    files = [folder / f"learning-{re.sub(r'[^a-z0-9_]+', '-', world)}.svg" for world in by_world]
    for file, (world, of_world) in zip(files, by_world.items(), strict=True):
        _draw(of_world, world, file)
    return files


def _draw(runs: Sequence[Run], world: str, file: Path) -> None:
    panels: dict[str, Callable[[Run], Sequence[float | None]]] = {
        "reward of drafts": lambda run: run.drafts,
        "reward of refined answers": lambda run: run.refined,
        "gap: refined - draft, in sessions with both": lambda run: run.gap,
    }
    for name in WORLDS[runs[0].task, runs[0].regime].secondary:
        panels[name] = lambda run, name=name: run.secondary.get(f"{SECONDARY}{run.task}/{name}", [])  # type: ignore[misc]
    arms = list(dict.fromkeys(run.arm for run in runs))
    colours = pyplot.colormaps["tab10" if len(arms) <= 10 else "tab20"].colors
    figure, axes = pyplot.subplots(1, len(panels), figsize=(5.5 * len(panels), 4), squeeze=False, layout="constrained")
    for panel, (title, values) in zip(axes[0], panels.items(), strict=True):
        for number, arm in enumerate(arms):
            curves = [[math.nan if v is None else v for v in values(run)] for run in runs if run.arm == arm]
            steps = min(map(len, curves))
            table = np.array([curve[:steps] for curve in curves], dtype=float)
            if not steps or np.isnan(table).all():
                continue
            colour, x = colours[number % len(colours)], np.arange(1, steps + 1)
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
