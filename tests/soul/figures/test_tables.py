"""The tables of `soul figures`: results and paired differences.

Promise under test: scores, intervals and signs are those of `soul.evaluate` and `soul.compare`, with seeds as further
samples; scores of another judge are not ranked.
"""

import csv
import random
from pathlib import Path

import pytest

from soul.evaluate.numbers.results import summarise
from soul.evaluate.run.run_folder import EvaluationRun
from soul.figures.command import main
from tests.soul.evaluate.finished_run import SETTINGS, finished_run
from tests.soul.evaluate.finished_samples import numbered, usage

SETS = {"hitom": 0.4, "paratomi": 0.7}
ROWS = 60


def evaluation(folder: Path, model: str, gain: float, seed: int, **settings: object) -> EvaluationRun:
    dice = random.Random(f"{model} {seed}")
    samples = [
        sample
        for name, start in SETS.items()
        for sample in numbered([float(dice.random() < start + gain) for _ in range(ROWS)], name)
    ]
    return finished_run(folder, samples, policy={**SETTINGS["policy"], "model": model}, **settings)


def tables(out: Path, *words: str) -> tuple[str, str, list[dict[str, str]]]:
    """Results as Markdown, LaTeX and CSV."""
    assert main([*words, "--out", str(out)]) == 0
    with (out / "results.csv").open(newline="") as file:
        return (out / "results.md").read_text(), (out / "results.tex").read_text(), list(csv.DictReader(file))


def line(text: str, start: str) -> list[str]:
    (found,) = [row for row in text.splitlines() if row.startswith(start)]
    return [cell.strip() for cell in found.strip("|").removesuffix(r"\\").split("&" if "&" in found else "|")]


def test_scores_and_signs_are_those_of_evaluate_and_compare(tmp_path: Path) -> None:
    grpo = evaluation(tmp_path / "grpo", "grpo", 0.0, 1)
    seeds = [evaluation(tmp_path / f"ditto-{seed}", "ditto", 0.35, seed) for seed in (1, 2)]
    words = ["--evals", f"ditto={seeds[0].folder},{seeds[1].folder}", f"grpo={grpo.folder}"]
    markdown, latex, rows = tables(tmp_path / "out", *words)
    alone = summarise(grpo.samples, grpo.sets).sets["hitom"]
    assert alone.mean is not None and alone.interval is not None
    low, high = (f"{100 * end:.1f}" for end in alone.interval)
    ditto, of_grpo = line(markdown, "| hitom ")[2:]
    assert of_grpo == f"*{100 * alone.mean:.1f}* [{low}, {high}]"
    means = [summarise(run.samples, run.sets).sets["hitom"].mean for run in seeds]
    assert None not in means
    both = sum(filter(None, means)) / 2
    assert ditto.startswith(f"**{100 * both:.1f}** †") and "seeds" in ditto  # the baseline is grpo, not the first
    assert line(latex, "hitom ")[2].startswith(rf"\textbf{{{100 * both:.1f}}} {{\scriptsize $\dagger$ [")
    (row,) = [row for row in rows if (row["set"], row["name"]) == ("hitom", "ditto")]
    assert (row["samples"], row["seeds"], row["mark"], row["differs"]) == (str(2 * ROWS), "2", "best", "†")
    assert line(markdown, "| macro average, 2 sets ")[2].startswith("**")


def test_scores_of_another_judge_are_not_ranked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    judged = {"policy": usage(0.5, 100, 20), "judge": usage(0.1, 10, 10)}
    judge = {**SETTINGS["roles"]["judge"], "model": "another"}
    a = finished_run(tmp_path / "a", numbered([0.1, 0.3], "coser", usages=judged), by_task={})
    b = finished_run(tmp_path / "b", numbered([0.5, 0.6], "coser", usages=judged), by_task={}, roles={"judge": judge})
    markdown, _, rows = tables(tmp_path / "out", "--evals", f"a={a.folder}", f"b={b.folder}")
    assert not any(row["mark"] or row["differs"] for row in rows) and "*" not in line(markdown, "| coser ")[3]
    assert "b: not comparable with a: judge: gpt-judge and another, in coser." in markdown
    assert not (tmp_path / "out" / "training.pdf").exists()
    assert main(["--evals", f"both={a.folder},{b.folder}", "--out", str(tmp_path / "seeds")]) == 2
    said = capsys.readouterr().err
    assert "are not seeds of one thing in coser (judge: gpt-judge and another)" in said


def test_the_papers_own_row_is_marked_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It averages fewer sets than the comparison, so that a look at the comparison's own average marked it never."""
    monkeypatch.setattr("soul.suites.soul_v1.PAPER", tuple(SETS))
    for name, right in {"grpo": 20, "ditto": 50}.items():
        samples = [one for of in SETS for one in numbered([float(n < right) for n in range(ROWS)], of)]
        finished_run(tmp_path / name, [*samples, *numbered([0.0, 1.0] * 10, "mistakes")])
    markdown, *_ = tables(tmp_path / "out", "--evals", *(f"{name}={tmp_path / name}" for name in ("grpo", "ditto")))
    assert " † [" in line(markdown, "| macro average, paper's 10 ")[3]
