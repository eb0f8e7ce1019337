"""Social-R1: options are read from the question's text, in whatever form it gives them."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from soul.leaks.redaction import redact
from soul.tasks.social_r1 import SocialR1, SocialR1Row, options_in
from tests.soul.tasks.one_turn_samples import SOCIAL_R1, tagged, verdict_of

TASK = SocialR1()
TEXT = SOCIAL_R1["prompt_text"]


def row_with(**fields):
    return SocialR1Row.model_validate({**SOCIAL_R1, **fields})


@pytest.mark.parametrize(
    "text, options",
    [
        ("What?\nA. x\nB. y", {"A": "x", "B": "y"}),
        ("What?\nA) x\nB) y\nC) z\n\nAnswer with a letter.", {"A": "x", "B": "y", "C": "z"}),
        ("What?\n(A) x\n(B) y\nAnswer with a letter.", {"A": "x", "B": "y"}),
        ("**A.** x\n**B.** y", {"A": "x", "B": "y"}),
        ("- A: x\n- B: y", {"A": "x", "B": "y"}),
        ("  a) x\n  b) y", {"A": "x", "B": "y"}),
        ("A、甲\nB、乙", {"A": "甲", "B": "乙"}),
        ("A. two\nlines\nB. more\nlines\n\nPick.", {"A": "two\nlines", "B": "more\nlines"}),
        ("Which? A. He went. B. She. C. They all", {"A": "He went.", "B": "She.", "C": "They all"}),
        ("Which? (A) one; (B) two, (C) three", {"A": "one", "B": "two", "C": "three"}),
        ("A: Hi!\nB: Hello.\nWho is glad?\nA. Ann\nB. Bob", {"A": "Ann", "B": "Bob"}),
        ("A: Hi!\nB: Hello.\nWho?\nA. Ann\nB. Bob\nC. Both", {"A": "Ann", "B": "Bob", "C": "Both"}),
        ("Mr. A. Smith frowns. Is he glad? Yes or no?", {}),
        ("B. y\nC. z", {}),
        ("", {}),
    ],
)
def test_forms_of_options(text, options):
    assert options_in(text) == options


words = st.text(st.characters(codec="utf-8", categories=("L",)), min_size=2, max_size=12)


@settings(max_examples=25, deadline=None)
@given(
    texts=st.lists(words, min_size=2, max_size=26),
    form=st.sampled_from(["{}. ", "{}) ", "({}) ", "[{}] ", "{}: ", "**{}.** "]),
    story=words,
)
def test_options_are_read_back_from_any_form(texts, form, story):
    letters = [chr(ord("A") + number) for number in range(len(texts))]
    lines = "\n".join(form.format(letter) + text for letter, text in zip(letters, texts, strict=True))
    assert options_in(f"{story} speaks.\n\nQuestion: Why?\n{lines}\n\nThink.") == dict(zip(letters, texts, strict=True))


def test_where_the_text_comes_from():
    chat = [{"role": "user", "content": TEXT}, {"role": "assistant", "content": "It is B."}]
    record = {"index": 0, "answer_letter": "B", "answer_text": "Disappointment"}
    for fields in (
        {"prompt_text": TEXT},
        {"conversations": [{"messages": chat}]},
        {"conversations": json.dumps([{"messages": chat}])},
        {"conversations": [{"from": "human", "value": TEXT}, {"from": "gpt", "value": "B"}]},
        {"prompt": TEXT},
        {"prompt": chat},
        {"prompt": [{"role": "user", "content": [{"type": "text", "text": TEXT}]}]},
        {"prompt_text": None, "conversations": [], "prompt": json.dumps(chat)},
    ):
        assert SocialR1Row.model_validate({**record, **fields}) == row_with(), fields
    with pytest.raises(ValidationError, match="prompt_text"):
        SocialR1Row.model_validate(record)


def test_a_text_whose_options_cannot_be_read_is_scored_all_the_same():
    row = row_with(prompt_text="Is he glad, first, or sad, second? Answer A or B.", answer_text=None)
    TASK.check(row)
    assert TASK.options(row) == {} and TASK.reference(row) == "B. "
    assert verdict_of(TASK, row, tagged("B")).metrics == {
        "accuracy": 1.0,
        "accuracy_strict": 1.0,
        "answered": 1.0,
        "answered_strict": 1.0,
    }
    assert verdict_of(TASK, row, tagged("A")).metrics == {
        "accuracy": 0.0,
        "accuracy_strict": 0.0,
        "answered": 1.0,
        "answered_strict": 1.0,
    }
    assert redact("The answer is B.", TASK.secrets(row)) == ("The [withheld].", ["answer is B"])


def test_a_list_that_is_read_in_part_condemns_nobody():
    row = row_with(prompt_text="Which?\nA. x\nB. y\nor (C) both", answer_letter="C", answer_text=None)
    TASK.check(row)
    assert list(TASK.options(row)) == ["A", "B"]
    assert verdict_of(TASK, row, tagged("C")).metrics == {
        "accuracy": 1.0,
        "accuracy_strict": 1.0,
        "answered": 1.0,
        "answered_strict": 1.0,
    }
    assert verdict_of(TASK, row, tagged("D")).metrics == {
        "accuracy": 0.0,
        "accuracy_strict": 0.0,
        "answered": 0.0,
        "answered_strict": 0.0,
    }
