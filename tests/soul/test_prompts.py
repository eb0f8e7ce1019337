"""Prompts: text files with a version."""

import copy

import pytest

from soul.prompts import Prompt, load_prompt


def test_a_prompt_keeps_its_id_when_it_is_copied_or_sent_to_the_judge_actor() -> None:
    same = copy.deepcopy(Prompt("Rate the tone.", "task/judge.v3"))  # copies go the way of pickle
    assert (same, same.id, type(same)) == ("Rate the tone.", "task/judge.v3", Prompt)


def test_values_are_not_searched_for_fields_and_every_field_needs_one() -> None:
    prompt = Prompt("Rate {{name}}, {not a field}.", "task/policy.v1")
    assert prompt.fill(name="{{tone}}") == "Rate {{tone}}, {not a field}."
    with pytest.raises(KeyError, match="name"):
        prompt.fill(tone="kind")


def test_a_version_that_does_not_exist_is_an_error() -> None:
    with pytest.raises(FileNotFoundError, match="v99"):
        load_prompt("sotopia/judge", 99)
