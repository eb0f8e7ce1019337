"""The objectives are consistent; a part that means nothing is refused; an unknown name is answered with the nearest."""

from typing import Any

import pytest
from pydantic import ValidationError

from ditto.objectives import AGENT_VERSIONS, OBJECTIVES, UnknownObjective, objective
from ditto.objectives.spec import Objective, Part
from ditto.settings import Settings

KINDS = {"draft", "refined_base", "refined_feedback"}


@pytest.mark.parametrize("name", OBJECTIVES)
def test_objectives_are_consistent(name: str) -> None:
    row = objective(name)
    assert row.name == name
    assert row.parts and all(part.kinds for part in row.parts)
    assert set(row.kinds) <= KINDS
    assert len(row.kinds) == len(set(row.kinds)), "a kind in two parts would be trained twice"
    assert len({part.name for part in row.parts}) == len(row.parts)
    assert all(isinstance(part.weight, float) or part.weight in Settings.model_fields for part in row.parts)


def test_grpo_trains_drafts_alone() -> None:
    assert objective("grpo").kinds == ("draft",)
    assert not objective("grpo").refines


def test_ditto_is_the_joint_and_the_feedback_group_of_the_paper() -> None:
    joint, feedback = objective("ditto").parts
    assert (set(joint.kinds), joint.weight) == ({"draft", "refined_base"}, 1.0)
    assert (feedback.kinds, feedback.weight) == (("refined_feedback",), "feedback_coef")
    assert objective("ditto").refines
    assert all((p.baseline, p.scale, p.loss) == ("group_mean", "std", "clipped") for p in (joint, feedback))


def test_the_originals_names_are_objectives() -> None:
    assert AGENT_VERSIONS == {"default": "grpo", "copy": "ditto"}
    assert set(AGENT_VERSIONS.values()) <= OBJECTIVES.keys()


@pytest.mark.parametrize(
    ("wrong", "right"), [("dito", "ditto"), ("gpro", "grpo"), ("DITTO", "ditto"), ("rltf", "rltf_sd")]
)
def test_a_misspelt_name_is_answered_with_the_right_one(wrong: str, right: str) -> None:
    with pytest.raises(UnknownObjective) as caught:
        objective(wrong)
    assert repr(wrong) in str(caught.value) and right in str(caught.value)


def test_a_name_that_is_like_none_gets_the_whole_list() -> None:
    with pytest.raises(UnknownObjective, match="Use grpo, ditto, rltf_sd"):
        objective("xyz")


@pytest.mark.parametrize(
    ("values", "complaint"),
    [
        ({"loss": "shaped"}, "'clipped', 'plain' or 'nll'"),
        ({"loss": "divergence"}, "'clipped', 'plain' or 'nll'"),
        ({"kinds": ("drafts",)}, "'draft', 'refined_base' or 'refined_feedback'"),
        ({"kinds": ()}, "at least 1"),
        ({"baseline": "mean"}, "'group_mean', 'first_turn_mean' or 'none'"),
        ({"baseline": "first_turn_mean"}, "use scale='none'"),
        ({"loss": "nll"}, "reads no reward"),
        ({"weight": -1.0}, "greater than or equal to 0"),
        ({"weight": "my_coef"}, "'feedback_coef'"),
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
