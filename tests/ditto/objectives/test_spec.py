"""The objectives are consistent; a part that means nothing is refused; an unknown name is answered with the nearest."""

from typing import Any

import pytest
from omegaconf import OmegaConf
from pydantic import ValidationError

from ditto.objectives import OBJECTIVES, UnknownObjective, objective
from ditto.objectives.losses import distill_token
from ditto.objectives.options import ObjectiveOptions
from ditto.objectives.spec import Objective, Part


@pytest.mark.parametrize("name", OBJECTIVES)
def test_objectives_are_consistent(name: str) -> None:
    row = objective(name)
    assert row.name == name and all(ObjectiveOptions().weight(part) >= 0 for part in row.parts)
    distils = name.startswith(("sdpo", "on_policy"))
    assert distils == (row.distillation is not None) and (not distils or row.kinds == ("draft",) and not row.refines)
    assert row.needs_feedback == (row.refines or name.startswith("sdpo"))
    for option in row.options:
        assert OmegaConf.select(OmegaConf.create(ObjectiveOptions().model_dump()), option) is not None, option


def test_the_options_of_an_objective_are_those_that_its_functions_read() -> None:
    group = {"norm_adv_by_std_in_grpo", "std_floor"}
    assert objective("ditto").options == group | {"feedback_coef"}
    assert objective("erl").options == group | {"feedback_coef"}
    assert objective("critique_grpo").options == {"shaping_gamma"}
    sdpo = {f"sdpo.{name}" for name in ("teacher", "teacher_rate", "ratio_clip", "weight")}
    assert objective("sdpo_token_grpo").options == group | sdpo
    logits = {f"distill.{name}" for name in ("teachers", "ratio_clip", "alpha", "top_k", "tail")}
    assert objective("on_policy_distillation_logits").options == logits


def test_a_misspelt_name_is_answered_with_the_right_one() -> None:
    with pytest.raises(UnknownObjective, match="'gpro'.*Did you mean grpo"):
        objective("gpro")


@pytest.mark.parametrize(
    ("values", "complaint"),
    [
        ({"loss": "clipped"}, "callable"),
        ({"kinds": ("drafts",)}, "'draft', 'refined_base' or 'refined_feedback'"),
        ({"kinds": ()}, "at least 1"),
        ({"group": ("refined_base",)}, "group must contain the episodes"),
        ({"loss": distill_token, "kinds": ("refined_base",)}, "scores drafts"),
        ({"average_over": ("refined_base",)}, "must contain draft"),
        ({"weight": -1.0}, "greater than or equal to 0"),
        ({"coefficient": "feedback_coef"}, "nexpected keyword"),
    ],
)
def test_a_part_that_means_nothing_is_refused(values: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ValidationError, match=complaint):
        Part(**{"name": "part", "kinds": ("draft",)} | values)


@pytest.mark.parametrize("parts", [(), (Part("a", ("draft",)),) * 2, (Part("a", ("draft",)), Part("b", ("draft",)))])
def test_parts_that_share_a_name_or_a_kind_are_refused(parts: tuple[Part, ...]) -> None:
    with pytest.raises(ValidationError, match="its own|at least 1"):
        Objective("mine", parts)
