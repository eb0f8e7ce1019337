"""The demo's stages: a refused training ends it before any training starts."""

from __future__ import annotations

import sys

import pytest

from ditto.objectives import OBJECTIVES
from recipe.demo.run import STEADY, StageFailed, check, steadied


def test_a_refused_training_is_named_before_any_starts(capsys: pytest.CaptureFixture[str]) -> None:
    refused = (
        "import sys; assert sys.argv[1:] == ['+dry_run=true']; print('feedback_coef: no', file=sys.stderr); exit(2)"
    )
    with pytest.raises(StageFailed, match="refused"):
        check([sys.executable, "-c", refused], {})
    assert "feedback_coef: no" in capsys.readouterr().out
    check([sys.executable, "-c", "pass"], {})


def test_both_trainings_read_the_settings_that_steady_them() -> None:
    options = {word.split("=")[0].removeprefix("algorithm.") for word in STEADY}
    assert all(options <= OBJECTIVES[name].options for name in ("ditto", "grpo"))


def test_an_objective_of_the_users_is_trained_as_its_paper_says() -> None:
    assert steadied(["data.seed=2"]) == [*STEADY, "data.seed=2"]
    assert steadied(["algorithm.objective=critique_grpo"]) == ["algorithm.objective=critique_grpo"]
