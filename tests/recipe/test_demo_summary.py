"""The demo's summary says what the numbers say: rising, flat and falling runs get different sentences."""

import json
import random
from pathlib import Path

import pytest

pytest.importorskip("matplotlib")

from recipe.demo import summary
from recipe.demo.summary import Step

ACCURACIES = {
    "base": {"sampled": 0.01, "sampled_se": 0.01, "greedy": 0.0, "rows": 128},
    "warm": {"sampled": 0.45, "sampled_se": 0.02, "greedy": 0.40, "rows": 128},
    "ditto": {"sampled": 0.85, "sampled_se": 0.02, "greedy": 0.90, "rows": 128},
    "grpo": {"sampled": 0.75, "sampled_se": 0.02, "greedy": 0.80, "rows": 128},
}


def run(first: float, last: float, n: int = 20, noise: float = 0.03) -> list[Step]:
    rng = random.Random(0)
    drafts = [first + (last - first) * i / (n - 1) + rng.gauss(0, noise) for i in range(n)]
    return [Step(i + 1, draft, min(1.0, draft + 0.2)) for i, draft in enumerate(drafts)]


@pytest.mark.parametrize(
    ("first", "last", "word"),
    [(0.45, 0.85, "rose"), (0.5, 0.5, "did not clearly change"), (0.8, 0.4, "fell")],
)
def test_sentence_follows_the_curve(first: float, last: float, word: str) -> None:
    text = summary.sentence(run(first, last), {})
    assert f"Drafts {word} over 20 steps" in text
    assert [w for w in ("rose", "fell", "did not clearly change") if w in text] == [word]


def test_the_error_is_that_of_the_quarters() -> None:
    steps = [Step(n, draft, None) for n, draft in enumerate([0.0, 0.2, 0.5, 0.5, 0.5, 0.5, 0.8, 1.0])]
    text = summary.sentence(steps, {})
    assert (
        "0.100 to 0.900 (means of the first and the last quarter; the standard error of the change is 0.141)" in text
    )  # sqrt(0.02)


def test_accuracy_change_is_the_measured_one() -> None:
    text = summary.sentence(run(0.4, 0.8), ACCURACIES)
    assert "changed by +0.400 (standard error 0.028)" in text
    worse = {**ACCURACIES, "ditto": {**ACCURACIES["ditto"], "sampled": 0.3}}
    assert "changed by -0.150" in summary.sentence(run(0.4, 0.8), worse)


def test_reads_metrics_and_writes_table_and_picture(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    metrics, png = tmp_path / "metrics.jsonl", tmp_path / "out" / "curves.png"
    lines = [{"step": s.number, summary.DRAFT: s.draft, summary.REFINED: s.refined} for s in run(0.4, 0.8, n=12)]
    # a validation before training, a step without refined answers, and one with a validation
    lines[4:6] = [{"step": 5, summary.DRAFT: 0.5}, {**lines[5], summary.HELD_BACK: 0.625}]
    extra = [{"step": 0, "val/x": 1.0}]
    metrics.write_text("\n".join(json.dumps(line) for line in [*lines, *extra]) + "\n", encoding="utf-8")
    steps = summary.read_steps(metrics)
    assert [s.number for s in steps] == list(range(1, 13))
    assert steps[4] == Step(5, 0.5, None) and steps[5].heldback == 0.625
    summary.show({"ditto": steps, "grpo": steps}, ACCURACIES, png)
    shown = capsys.readouterr().out
    assert "0.625" in shown
    assert "trained with DITTO is more accurate on held-back stories: 0.850 against 0.750" in " ".join(shown.split())
    assert "after DITTO" in shown and "warm start" in shown and "rose" in shown
    assert png.read_bytes().startswith(b"\x89PNG") and png.stat().st_size > 5000
