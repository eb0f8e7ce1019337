"""The statistics of `benchmarks.learning`'s table."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from benchmarks.learning import ARMS, Result, results
from benchmarks.learning_table import at_tokens, interval, largest_fall, p_value, write_figures, write_table
from ditto.objectives import OBJECTIVES


def run(arm: str, seed: int, drafts: list[float], sampled: float = 0.9) -> Result:
    steps = len(drafts)
    tokens = [100.0 * (step + 1) for step in range(steps)]
    noise = {"grad_norm": [0.1] * steps, "entropy": [1.0] * steps, "seconds": [2.0] * steps}
    return Result("usual", arm, seed, steps, drafts, [None] * steps, tokens, sampled=sampled, **noise)


def test_every_objective_that_needs_no_checkpoints_is_an_arm() -> None:
    assert {name for name, objective in OBJECTIVES.items() if objective.teacher != "experts"} <= set(ARMS)


def test_the_permutation_test_is_exact() -> None:
    assert p_value([1.0, 1.1, 1.2, 1.3, 1.4], [0.1, 0.2, 0.3, 0.4, 0.5]) == pytest.approx(2 / 252)
    assert p_value([0.1, 0.2, 0.3], [0.4, 0.5, 0.6]) == pytest.approx(2 / 20)
    assert p_value([0.1, 0.9], [0.1, 0.9]) == 1.0
    assert math.isnan(p_value([0.1], [0.4, 0.5]))


def test_a_fall_is_between_two_steps_and_a_budget_ends_at_a_step() -> None:
    falls = run("ditto", 1, [0.5, 0.9, 0.6, 0.7])
    assert largest_fall(falls) == pytest.approx(0.3) and largest_fall(run("ditto", 1, [0.1, 0.2])) == 0.0
    assert (at_tokens(falls, 250), at_tokens(falls, 50), at_tokens(falls, 1e9)) == (0.9, 0.5, 0.7)


def test_an_interval_holds_the_mean_and_lies_within_the_values() -> None:
    low, high = interval([0.8, 0.9, 1.0, 0.7, 0.95])
    assert 0.7 <= low < 0.87 < high <= 1.0


def test_the_table_compares_arms_and_the_figures_draw_them(tmp_path: Path) -> None:
    runs = [run("grpo", seed, [0.4, 0.5 + seed / 1000], 0.8) for seed in range(1, 6)]
    runs += [run("ditto", seed, [0.5, 0.7 + seed / 1000], 0.9) for seed in range(1, 6)]
    for each in runs:
        each.task, each.secondary = "sotopia", {"ditto/secondary/sotopia/secret": [-1.0, None, -3.0]}
    lines = [line for line in write_table(runs).splitlines() if line.startswith("| ditto")]
    numbers = "0.900 (0.900 to 0.900) | 0.008 | 0.900 | 0.601 | 0.008 | 0.703 |  | 0.00 | -2.000"
    assert lines == [f"| ditto | 5 | {numbers} |  |  |  |"]
    (file,) = write_figures(runs, tmp_path)
    assert file.name == "learning-usual-sotopia-2-steps-one_process.svg" and "secret" in file.read_text()


def test_regimes_of_a_task_stand_in_one_table() -> None:
    runs = [run("grpo", seed, [0.4, 0.6], 0.7 + seed / 10) for seed in (1, 2)]
    assert "regime by regime" not in write_table(runs)
    runs += [run("ditto", 1, [0.2, 0.4], 0.5)]
    runs[-1].regime = "rare"
    table = write_table(runs).split("regime by regime**")[1].splitlines()
    assert [line for line in table if line.startswith(("| usual", "| rare"))] == [
        "| usual | 0.850 (0.800) |  | 0.500 |  |",
        "| rare |  | 0.500 (0.500) |  | 0.300 |",
    ]


def test_the_table_says_which_seeds_have_several_warm_starts() -> None:
    runs = [run(arm, seed, [0.1, 0.2]) for arm in ("grpo", "ditto") for seed in (1, 2)]
    assert "warm start" not in write_table(runs)
    runs[1].start = "0f1e2d3c"
    assert "Not all arms of seed 2 have the same warm start." in write_table(runs)


def test_runs_of_several_lengths_are_compared_at_equal_time() -> None:
    """A step of grpo takes 1 s, one of ditto 4 s; grpo's longer runs are taken."""
    runs = [run("grpo", 1, [0.1, 0.2]), run("grpo", 1, [0.1] * 10), run("ditto", 1, [0.2, 0.3])]
    runs[1].drafts[5:] = [0.4] * 5
    for each in runs:
        each.secondary = {"timing_s/cpu": [4.0 if each.arm == "ditto" else 1.0] * each.steps}
    text = write_table(runs)
    assert "| arm | seeds | steps | 2 s | 4 s | 6 s | 8 s |" in text
    assert "| grpo | 1 | 10 | 0.100 | 0.100 | 0.200 | 0.400 |" in text
    assert "| ditto | 1 | 2 |  | 0.200 | 0.200 | 0.250 |" in text


def test_a_folder_without_runs_has_no_results(tmp_path: Path) -> None:
    assert list(results(tmp_path)) == []
