"""`benchmarks.learning`: its runs, and the statistics of its tables."""

import math
import re
import statistics
import sys
from pathlib import Path

import pytest

from benchmarks import learning
from benchmarks.learning import ARMS, Result, results
from benchmarks.learning_table import p_value, write_figures, write_table
from benchmarks.side_by_side import ROOT
from ditto.objectives import OBJECTIVES

PAGE, MEASUREMENTS = (
    ROOT / "docs/learning.md",
    [ROOT / "benchmarks/measurements" / name for name in ("learning", "learning_first_message")],
)


def run(arm: str, seed: int, drafts: list[float], sampled: float = 0.9) -> Result:
    steps = len(drafts)
    tokens = [100.0 * (step + 1) for step in range(steps)]
    return Result("usual", arm, seed, steps, drafts, [None] * steps, tokens, sampled=sampled)


def test_every_objective_that_needs_no_checkpoints_is_an_arm() -> None:
    assert {name for name, objective in OBJECTIVES.items() if objective.teacher != "experts"} <= set(ARMS)


def test_the_permutation_test_is_exact_and_deals_each_world_by_itself() -> None:
    apart = ([0.1, 0.2, 0.3], [0.4, 0.5, 0.6])
    assert p_value(([1.0, 1.1, 1.2, 1.3, 1.4], [0.1, 0.2, 0.3, 0.4, 0.5])) == pytest.approx(2 / 252)
    assert p_value(apart) == pytest.approx(2 / 20) and p_value(apart, apart) == pytest.approx(2 / 400)
    assert p_value(([0.1, 0.9], [0.1, 0.9])) == 1.0
    assert math.isnan(p_value(([0.1], [0.4, 0.5])))


def test_the_page_holds_the_numbers_of_the_runs() -> None:
    runs = [each for folder in MEASUREMENTS for each in results(folder)]
    page = PAGE.read_text().splitlines()
    rows = [line for line in page if re.match(r"\| \S+ \| \d \|", line)]
    assert len(rows) >= 13 and set(rows) <= set(write_table(runs).splitlines())
    stories = [{run.arm: [] for run in runs}, {run.arm: [] for run in runs}]
    for run in (run for run in runs if run.regime == "very rare" and run.how == "one_process"):
        stories[run.task == "paratomi"][run.arm].append(run.sampled)
    text = " ".join(page)
    for arm, rival in (("ditto", "grpo"), ("ditto", "ditto_no_feedback_loss")):
        lead = statistics.fmean(statistics.fmean(s[arm]) - statistics.fmean(s[rival]) for s in stories)
        p = p_value(*((s[arm], s[rival]) for s in stories))
        assert f"{lead:.2f} of accuracy" in text and f"(p = {p:.3f}, " in text
    luck = stories[0]["grpo"] + stories[1]["grpo"]
    assert (sum(end >= 0.95 for end in luck), sum(end < 0.5 for end in luck)) == (4, 4)


def test_the_table_compares_arms_and_the_figures_draw_them(tmp_path: Path) -> None:
    runs = [run("grpo", seed, [0.4, 0.5 + seed / 1000], 0.8) for seed in range(1, 6)]
    runs += [run("ditto", seed, [0.5, 0.7 + seed / 1000], 0.9) for seed in range(1, 6)]
    for each in runs:
        each.task, each.secondary = "sotopia", {"secret": [-1.0, None, -3.0]}
    lines = [line for line in write_table(runs).splitlines() if line.startswith("| ditto")]
    numbers = "0.900 (0.900 to 0.900) | 0.008 | 0.900 | 0.601 | 0.008 | 0.703 |  | 0.00 | -2.000"
    assert lines[0] == f"| ditto | 5 | {numbers} |  |  |"
    (file,) = write_figures(runs, tmp_path)
    assert file.name == "learning-usual-sotopia-2-steps-cluster.svg" and "secret" in file.read_text()


def test_a_longer_run_is_read_where_a_run_of_ditto_has_spent_as_much() -> None:
    runs = [run("ditto", seed, [0.1, 0.2]) for seed in (1, 2)] + [run("grpo", seed, [0.1] * 6) for seed in (1, 2)]
    for each in runs:
        short = each.arm == "ditto"
        each.sampled = 0.6
        each.heldback = [(0, 0.1), (2, 0.5 if short else 0.2), *([] if short else [(4, 0.3), (6, 0.6)])]
        each.tokens, each.cpu = (
            ([200.0, 400.0], [3.0, 6.0]) if short else ([100.0 * n for n in range(1, 7)], [*range(1, 7)])
        )
    table = write_table(runs).split("equal budgets**")[1]
    assert "| ditto | 2 | 0.100 | 0.500 (0.500 to 0.500) |  | 0.500" in table
    assert "| grpo | 2 | 0.100 | 0.200 (0.200 to 0.200) | 1.00 | 0.300 (0.300 to 0.300) | 1.00 | 0.600 (" in table


FAKE_TRAINER = """
import json, pathlib, sys
words = dict(word.split("=", 1) for word in sys.argv[1:] if "=" in word)
counter = pathlib.Path("COUNTER")
counter.write_text(counter.read_text() + words["data.seed"])
if words["data.seed"] == "2" and counter.read_text().count("2") == 1:
    sys.exit("no memory left")
folder = pathlib.Path(words["run.dir"])
folder.mkdir(parents=True)
step = {"step": 1, "ditto/reward_draft": 0.5, "ditto/share_refined": 0.0, "ditto/sessions": 8}
step |= {"ditto/response_tokens_draft": 10}
lines = [step, step | {"val/hitom/reward": 0.6, "step": 2}]
(folder / "metrics.jsonl").write_text("".join(json.dumps(line) + chr(10) for line in lines))
"""


def test_a_finished_run_is_not_repeated_and_a_failed_one_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    counter, script = tmp_path / "counter", tmp_path / "trainer.py"
    counter.write_text("")
    script.write_text(FAKE_TRAINER.replace("COUNTER", str(counter)))
    monkeypatch.setattr(learning, "TRAINER", (sys.executable, str(script)))
    for seed in ("1", "2"):  # prepared worlds: a warm start takes a minute
        world = tmp_path / "worlds" / "usual" / seed
        world.mkdir(parents=True)
        (world / "done").touch()
    arguments = ["run", "--folder", str(tmp_path), "--arms", "grpo", "--seeds", "2", "--at-a-time", "1"]

    assert learning.main(arguments) == 1
    assert "usual-hitom-grpo-2-15_steps-cluster FAILED" in capsys.readouterr().out
    assert learning.main(arguments) == 0
    assert counter.read_text() == "122"
    first, second = learning.results(tmp_path)
    assert (first.seed, second.seed, second.sampled) == (1, 2, 0.6)
    assert second.tokens == [80.0, 160.0] and second.heldback == [[2, 0.6]]
