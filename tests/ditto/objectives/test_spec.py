"""The table of objectives is consistent, and an unknown name is answered with the nearest ones."""

import pytest

from ditto.objectives.spec import AGENT_VERSIONS, OBJECTIVES, UnknownObjective, objective
from ditto.settings import Settings

KINDS = {"draft", "refined_base", "refined_feedback"}


@pytest.mark.parametrize("name", OBJECTIVES)
def test_rows_of_the_table_are_consistent(name: str) -> None:
    row = objective(name)
    assert row.name == name
    assert row.parts and all(part.kinds for part in row.parts)
    assert set(row.kinds) <= KINDS
    assert len(row.kinds) == len(set(row.kinds)), "a kind in two parts would be trained twice"
    assert len({part.name for part in row.parts}) == len(row.parts)
    assert all(part.coefficient is None or part.coefficient in Settings.model_fields for part in row.parts)


def test_grpo_trains_drafts_alone() -> None:
    assert objective("grpo").kinds == ("draft",)
    assert not objective("grpo").refines


def test_ditto_is_the_joint_and_the_feedback_group_of_the_paper() -> None:
    joint, feedback = objective("ditto").parts
    assert (set(joint.kinds), joint.coefficient) == ({"draft", "refined_base"}, None)
    assert (feedback.kinds, feedback.coefficient) == (("refined_feedback",), "feedback_coef")
    assert objective("ditto").refines


def test_the_originals_names_are_objectives() -> None:
    assert AGENT_VERSIONS == {"default": "grpo", "copy": "ditto"}
    assert set(AGENT_VERSIONS.values()) <= OBJECTIVES.keys()


@pytest.mark.parametrize(("wrong", "right"), [("dito", "ditto"), ("gpro", "grpo"), ("DITTO", "ditto")])
def test_a_misspelt_name_is_answered_with_the_right_one(wrong: str, right: str) -> None:
    with pytest.raises(UnknownObjective) as caught:
        objective(wrong)
    assert repr(wrong) in str(caught.value) and right in str(caught.value)


def test_a_name_that_is_like_none_gets_the_whole_list() -> None:
    with pytest.raises(UnknownObjective, match="Use grpo, ditto"):
        objective("xyz")
