"""The tables and the curves of `benchmarks.learning`: means over seeds, with what a few seeds allow to say.

Intervals are percentile bootstraps over seeds. A difference between two arms is tested by an exact permutation test
over all ways to deal the runs to the two arms: the smallest possible p is 0.10 with three seeds each, 0.008 with five.
"""

import math
import re
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, combinations
from pathlib import Path

import matplotlib
import numpy as np

from benchmarks.learning import Result
from benchmarks.learning_worlds import WORLDS
from soul.metrics.intervals import holm

matplotlib.use("Agg")
matplotlib.rcParams["svg.hashsalt"] = "ditto"  # the same numbers give the same file
from matplotlib import pyplot  # noqa: E402 - the backend without a display comes first

BASELINE, LEADER = "grpo", "ditto"
SUMMARY: dict[str, Callable[[Result], float]] = {
    "very rare, hitom, 40 steps, one_process": lambda run: run.sampled,
    "very rare, paratomi, 40 steps, one_process": lambda run: run.sampled,
    "usual, sotopia, 15 steps, one_process": lambda run: at_end(run.secondary["secret"]),
}
BUDGETS: dict[str, Callable[[Result], Sequence[float]]] = {
    "steps": lambda run: range(1, len(run.drafts) + 1),
    "tokens": lambda run: run.tokens,
    "CPU": lambda run: run.cpu,
}
RESAMPLES = 10_000


def area(run: Result) -> float:
    """Mean reward of the drafts over all steps: how fast and how far a run learned, in one number."""
    return statistics.fmean(run.drafts)


def at_tokens(run: Result, budget: float) -> float:
    """Mean reward of the drafts at the last step within this many sampled tokens."""
    within = [reward for reward, tokens in zip(run.drafts, run.tokens, strict=True) if tokens <= budget]
    return within[-1] if within else run.drafts[0]


def largest_fall(run: Result) -> float:
    """The largest fall of the drafts' reward from one step to the next; 0 if it never falls."""
    return max([0.0, *(a - b for a, b in zip(run.drafts, run.drafts[1:], strict=False))])


def p_value(*pairs: tuple[Sequence[float], Sequence[float]]) -> float:
    """Two-sided p of |difference of means|, exact over all ways to deal a pair's values to two groups of these sizes.

    Of several pairs (the same two arms in several worlds) the statistic is the sum of the differences, and each pair's
    values are dealt among themselves.
    """
    if min(map(len, chain(*pairs))) < 2:
        return math.nan
    null, seen = np.zeros(1), 0.0
    for ours, theirs in pairs:
        values = np.array([*ours, *theirs])
        sums = np.array([values[list(deal)].sum() for deal in combinations(range(len(values)), len(ours))])
        null = np.add.outer(null, sums / len(ours) - (values.sum() - sums) / len(theirs)).ravel()
        seen += statistics.fmean(ours) - statistics.fmean(theirs)
    return float((abs(null) >= abs(seen) - 1e-9).mean())


def interval(values: Sequence[float]) -> tuple[float, float]:
    """95 % of the means of resampled seeds."""
    chosen = np.random.default_rng(0).integers(len(values), size=(RESAMPLES, len(values)))
    low, high = np.quantile(np.asarray(values)[chosen].mean(1), (0.025, 0.975))
    return float(low), float(high)


def at_end(values: Sequence[float | None]) -> float:
    """Mean over the last three steps that have a value; NaN if none has."""
    known = [value for value in values if value is not None][-3:]
    return statistics.fmean(known) if known else math.nan


def write_table(runs: Sequence[Result]) -> str:
    """Markdown tables: one for each world and number of steps, one of a task's regimes, and those of the page."""
    tables = [_steps_table(world, of_world) for world, of_world in _worlds(runs).items()]
    for name, alike in _grouped(runs, lambda run: f"{run.task}, {run.steps} steps, {run.how}").items():
        if len({run.regime for run in alike}) > 1:
            tables.append(_regimes_table(name, alike))
    for name, alike in _grouped(runs, lambda run: f"{run.regime}, {run.task}, {run.how}").items():
        tables.append(_budget_table(name, alike))
    tables.append(_summary_table(_worlds(runs)))
    return "\n".join(line for table in tables for line in (*table, ""))


def heldback_at(run: Result, spent: Sequence[float], budget: float) -> float:
    """Reward on the held-back rows in the first validation after a budget is spent, or the last; `spent` is by step."""
    later = [value for step, value in run.heldback if step and spent[step - 1] >= 0.97 * budget]
    return [*later, run.sampled][0]


def _budget_table(world: str, runs: Sequence[Result]) -> Iterator[str]:
    """Arms of different lengths on the held-back rows, at the steps, tokens and CPU seconds of a run of DITTO."""
    arms = _grouped(runs, lambda run: run.arm)
    leaders = {run.seed: run for run in arms.get(LEADER, [])}
    if not leaders or not all(run.cpu for run in runs):
        return
    yield f"**{world}, at equal budgets**: held back, mean (lowest to highest run); p against {LEADER}, by Holm.\n"
    yield _header("arm", "seeds", "before", *(part for name in BUDGETS for part in (f"equal {name}", "p")))
    found = {
        arm: [
            [heldback_at(run, spent(run), spent(leaders[run.seed])[-1]) for run in of_arm if run.seed in leaders]
            for spent in BUDGETS.values()
        ]
        for arm, of_arm in arms.items()
    }
    tests = [(arm, place) for arm in found if arm != LEADER for place in range(len(BUDGETS))]
    raw = [p_value((found[LEADER][place], found[arm][place])) for arm, place in tests]
    corrected = dict(zip(tests, holm([None if math.isnan(p) else p for p in raw]), strict=True))
    for arm, values in found.items():
        cells = [arm, str(len(values[0])), _mean(run.heldback[0][1] for run in arms[arm])]
        for place, each in enumerate(values):
            p = corrected.get((arm, place))
            cells += [f"{statistics.fmean(each):.3f} ({min(each):.3f} to {max(each):.3f})" if each else ""]
            cells += ["" if p is None else f"{p:.2f}"]
        yield _row(cells)


def _summary_table(worlds: Mapping[str, Sequence[Result]]) -> Iterator[str]:
    """Both tasks of stories against the baseline in one test, and a metric that the reward of a third does not see."""
    if not set(SUMMARY) <= set(worlds):
        return
    hitom, paratomi, secret = (
        {arm: list(map(measure, of_arm)) for arm, of_arm in _grouped(worlds[name], lambda run: run.arm).items()}
        for name, measure in SUMMARY.items()
    )
    arms = sorted(set(hitom) & set(paratomi) & set(secret), key=lambda arm: -statistics.fmean(hitom[arm]))
    rivals = [arm for arm in arms if arm != BASELINE]
    stories = [p_value(*((world[arm], world[BASELINE]) for world in (hitom, paratomi))) for arm in rivals]
    secrets = [p_value((secret[arm], secret[BASELINE])) for arm in rivals]
    tested = dict(zip(rivals, zip(stories, holm(stories), secrets, holm(secrets), strict=True), strict=True))
    yield f"**{'; '.join(SUMMARY)}**: mean (worst seed); p against {BASELINE}, and corrected by Holm for its column.\n"
    yield _header("objective", "seeds", "Hi-ToM", "ParaToMi", "p", "Holm", "Sotopia: secret", "p", "Holm")
    for arm in arms:
        ends = [f"{statistics.fmean(world[arm]):.3f} ({min(world[arm]):.3f})" for world in (hitom, paratomi)]
        ps = [f"{p:.3f}" for p in tested[arm]] if arm in tested else [""] * 4
        yield _row([f"`{arm}`", str(len(hitom[arm])), *ends, *ps[:2], _mean(secret[arm]), *ps[2:]])


def _worlds(runs: Iterable[Result]) -> dict[str, list[Result]]:
    """The runs by what two of them must share to be compared."""
    return _grouped(runs, lambda run: f"{run.regime}, {run.task}, {run.steps} steps, {run.how}")


def _grouped(runs: Iterable[Result], key: Callable[[Result], str]) -> dict[str, list[Result]]:
    groups: defaultdict[str, list[Result]] = defaultdict(list)
    for run in runs:
        groups[key(run)].append(run)
    return dict(groups)


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _header(*columns: str) -> str:
    return f"{_row(columns)}\n" + "|---" * len(columns) + "|"


def _mean(values: Iterable[float]) -> str:
    return _number(statistics.fmean(values))


def _number(value: float) -> str:
    return "" if math.isnan(value) else f"{value:.3f}"


def _steps_table(world: str, runs: Sequence[Result]) -> Iterator[str]:
    budget = min(run.tokens[-1] for run in runs)
    minor = WORLDS[runs[0].task, runs[0].regime].secondary
    yield f"**{world}**; the column of equal tokens stops at {budget:,.0f} sampled.\n"
    columns = ("arm", "seeds", "held back (95 %)", "p", "worst seed", "drafts, all steps", "p", "at equal tokens")
    yield _header(*columns, "refined at the end", "largest fall", *minor)
    arms = _grouped(runs, lambda run: run.arm)
    rivals = arms.get(BASELINE, [])
    for arm, of_arm in sorted(arms.items(), key=lambda item: -statistics.fmean(map(area, item[1]))):
        held, areas = [run.sampled for run in of_arm], [area(run) for run in of_arm]
        low, high = interval(held)
        p_held, p_area = p_value((held, [run.sampled for run in rivals])), p_value((areas, list(map(area, rivals))))
        if arm == BASELINE:
            p_held = p_area = math.nan
        yield _row(
            [
                *(arm, str(len(of_arm)), f"{statistics.fmean(held):.3f} ({low:.3f} to {high:.3f})", _number(p_held)),
                *(f"{min(held):.3f}", f"{statistics.fmean(areas):.3f}", _number(p_area)),
                *(_mean(at_tokens(run, budget) for run in of_arm), _mean(at_end(run.refined) for run in of_arm)),
                f"{max(map(largest_fall, of_arm)):.2f}",
                *(_mean(at_end(run.secondary.get(name, [])) for run in of_arm) for name in minor),
            ]
        )


def _regimes_table(name: str, runs: Sequence[Result]) -> Iterator[str]:
    """The ends of the arms under several conditions: mean over seeds, and the worst seed."""
    arms = list(_grouped(runs, lambda run: run.arm))
    yield f"**{name}, regime by regime**: held back, mean (worst seed); mean reward of the drafts of all steps.\n"
    yield _header("regime", *(f"{arm}: held back" for arm in arms), *(f"{arm}: drafts" for arm in arms))
    for regime, of_regime in _grouped(runs, lambda run: run.regime).items():
        by_arm = _grouped(of_regime, lambda run: run.arm)
        held = {arm: [run.sampled for run in by_arm.get(arm, [])] for arm in arms}
        ends = (f"{statistics.fmean(values):.3f} ({min(values):.3f})" if values else "" for values in held.values())
        yield _row([regime, *ends, *(_mean(map(area, by_arm[arm])) if arm in by_arm else "" for arm in arms)])


def write_figures(runs: Sequence[Result], folder: Path) -> list[Path]:
    """Draw each world to a file of its own: drafts, refined answers, gap, and what the reward does not contain."""
    by_world = _worlds(runs)
    files = [folder / f"learning-{re.sub(r'[^a-z0-9_]+', '-', world)}.svg" for world in by_world]
    for file, (world, of_world) in zip(files, by_world.items(), strict=True):
        _draw(of_world, world, file)
    return files


def _draw(runs: Sequence[Result], world: str, file: Path) -> None:
    panels: dict[str, Callable[[Result], Sequence[float | None]]] = {
        "reward of drafts": lambda run: run.drafts,
        "reward of refined answers": lambda run: run.refined,
        "gap: refined - draft, in sessions with both": lambda run: run.gap,
    }
    for name in WORLDS[runs[0].task, runs[0].regime].secondary:
        panels[name] = lambda run, name=name: run.secondary.get(name, [])  # type: ignore[misc]
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
