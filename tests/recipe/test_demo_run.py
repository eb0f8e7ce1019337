"""The settings of the demo's trainings."""

from ditto.objectives import OBJECTIVES
from recipe.demo.run import STEADY, steadied


def test_both_trainings_read_the_settings_that_steady_them() -> None:
    options = {word.split("=")[0].removeprefix("algorithm.") for word in STEADY}
    assert all(options <= OBJECTIVES[name].options for name in ("ditto", "grpo"))


def test_an_objective_of_the_users_is_trained_as_its_paper_says() -> None:
    assert steadied(["data.seed=2"]) == [*STEADY, "data.seed=2"]
    assert steadied(["algorithm.objective=critique_grpo"]) == ["algorithm.objective=critique_grpo"]
