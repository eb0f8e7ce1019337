"""Social-R1: options are read from the question's text, in whatever form it gives them."""

import pytest

from soul.leaks.redaction import redact
from soul.tasks.social_r1 import SocialR1, SocialR1Row, options_in
from tests.soul.tasks.one_turn_samples import SOCIAL_R1, tagged, verdict_of

TASK = SocialR1()


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


@pytest.mark.parametrize(
    "fields",
    [
        *({"answer_letter": letter} for letter in ("b", "(B)", "B. Guilty", " B. ")),
        *({"answer_letter": None, "answer_text": text} for text in ("guilty", "B", "B. Guilty")),
    ],
)
def test_ways_to_name_the_right_option(fields):
    row = row_with(**fields)
    TASK.check(row)
    assert TASK.gold(row) == "B"


def test_a_text_whose_options_cannot_be_read_is_scored_all_the_same():
    row = row_with(prompt_text="Is he glad, first, or sad, second? Answer A or B.", answer_text=None)
    TASK.check(row)
    assert TASK.options(row) == {} and TASK.reference(row) == "B. "
    for letter, score in (("B", 1.0), ("A", 0.0)):
        metrics = {"accuracy": score, "accuracy_strict": score, "answered": 1.0, "answered_strict": 1.0}
        assert verdict_of(TASK, row, tagged(letter)).metrics == metrics
    assert redact("The answer is B.", TASK.secrets(row)) == ("The [withheld].", ["answer is B"])
