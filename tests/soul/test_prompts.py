"""Judge prompts: text files with a version."""

import copy

import pytest

from soul.prompts import Prompt, load_prompt


def test_a_prompt_keeps_its_id_when_it_is_filled_copied_or_sent_to_the_judge_actor() -> None:
    prompt = Prompt("Rate {{name}}.", "task/judge.v3").fill({"name": "{{tone}}"})
    for same in (prompt, copy.deepcopy(prompt)):  # copies go the way of pickle
        assert (same, same.id, type(same)) == ("Rate {{tone}}.", "task/judge.v3", Prompt)


def test_a_version_that_does_not_exist_is_an_error() -> None:
    with pytest.raises(FileNotFoundError, match="v99"):
        load_prompt("sotopia/judge", 99)
