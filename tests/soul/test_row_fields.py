"""What public records write in several ways."""

import json

import numpy as np
import pytest

from soul.row_fields import (
    listed_texts,
    option_texts,
    parse_literal,
    strip_option_letters,
    user_text,
)


def test_nothing_is_evaluated():
    for text in ("__import__('os').getcwd()", "[x for x in (1,)]", "1 + 1 +"):
        with pytest.raises(ValueError):
            parse_literal(text)


@pytest.mark.parametrize(
    "given_texts, bare",
    [
        (["A. x", "B.y", "(C) z", "D) w", "[E] v"], ["x", "y", "z", "w", "v"]),
        (["a. x", "b: y"], ["x", "y"]),
        (["A. x", "C. y"], ["A. x", "C. y"]),
        (["B. x", "A. y"], ["B. x", "A. y"]),
        (["A. x", "y"], ["A. x", "y"]),
        (["A.", "B."], ["A.", "B."]),  # letters and nothing else stay
        (["x", "y"], ["x", "y"]),
    ],
)
def test_bare_options(given_texts, bare):
    assert strip_option_letters(given_texts) == bare


@pytest.mark.parametrize(
    "given_options",
    [
        ["door mat", "opera"],
        {"label": ["A", "B"], "text": ["door mat", "opera"]},
        [{"label": "A", "text": "door mat"}, {"label": "B", "text": "opera"}],
        [{"label": "B", "text": "opera"}, {"label": "A", "text": "door mat"}],
        {"A": "door mat", "B": "opera"},
        [{"text": "door mat"}, {"text": "opera"}],
    ],
)
def test_every_published_form_of_options_gives_the_same_texts(given_options):
    for form in (given_options, json.dumps(given_options), repr(given_options)):
        assert listed_texts(form) == option_texts(form) == ["door mat", "opera"]
    if isinstance(given_options, list):  # as pandas reads a list from parquet
        assert listed_texts(np.array(given_options)) == ["door mat", "opera"]


def test_a_chat_ends_where_the_assistant_speaks():
    chat = [
        {"role": "system", "content": "Play."},
        {"role": "user", "content": "Who?"},
        {"role": "assistant", "content": "B"},
        {"role": "user", "content": "Sure?"},
    ]
    assert user_text({"prompt": chat}) == "Play.\n\nWho?"
    assert user_text({"conversations": [{"messages": chat}, {"messages": []}], "prompt": "other"}) == "Play.\n\nWho?"
    assert user_text({}) == user_text({"prompt": []}) == user_text({"conversations": [None]}) == ""
