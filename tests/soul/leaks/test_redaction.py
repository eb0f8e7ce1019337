"""The leak check: a critique keeps its advice and loses the answer, however it is spelled or pointed at."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from soul.leaks.quotations import Choices
from soul.leaks.redaction import WITHHELD, redact


@pytest.mark.parametrize("spelling", ["green box", "Green-Box", "GREEN  BOX", "green\nbox", "'green_box'."])
def test_a_secret_is_found_however_it_is_spelled(spelling):
    text, withheld = redact(f"Look at the {spelling} again", ["green_box"])
    assert len(withheld) == 1 and WITHHELD in text
    assert not re.search(r"green\W*box", text, re.IGNORECASE)


@pytest.mark.parametrize("text", ["the green boxes", "evergreen_box", "a greenbox", "green and box"])
def test_other_words_stay(text):
    assert redact(text, ["green_box"]) == (text, [])


@pytest.mark.parametrize(
    "text",
    [
        "the answer is C",
        "the answer is c, because",
        "the answer is not C",
        "the answer is **C**",
        "the answer's C",
        'option "C" fits',
        "Choice (c)",
        "pick C",
        "you chose C although",
        "go with C",
        "C is correct",
        "look at (C) again",
        "write <answer>C</answer>",
        "<answer>\nred_crate\n</answer>",
        "the answer is a",
        "the answer is I because",
        "reply C is hers",
        "replies c and I",
        "options C, I or A.",
        "alternative C",
    ],
)
def test_an_option_that_is_pointed_at_is_withheld(text):
    redacted, withheld = redact(text, [" "])
    assert len(withheld) == 1 and WITHHELD in redacted
    assert not re.search(r"\b[CcAI]\b|red_crate", redacted)


@pytest.mark.parametrize("place", ["Last option", "3rd choice", "first two options", "option 2", "Reply no. 3"])
def test_an_option_that_is_pointed_at_by_its_place_is_withheld(place):
    redacted, withheld = redact(f"here the {place} fits", [" "])
    assert len(withheld) == 1 and re.fullmatch(rf"here (the )?{re.escape(WITHHELD)} fits", redacted)


@pytest.mark.parametrize(
    "text",
    [
        "your answer is a place, not a room",
        "The answer a careful reader gives names a container.",
        "which option a person in the hall would choose",
        "You answer a question that was not asked.",
        "the first reply you gave was too sharp",
        "your second response, and your first choice",
        "a reply a friend would write; the response I gave",
        "choose one option, and give reasons",
        "reply to her first, then look at the option one person takes",
    ],
)
def test_ordinary_advice_stays_whole(text):
    assert redact(text, ["green_box"]) == (text, [])


@pytest.mark.parametrize("secret", ["a(b", "[x]", "c++", "\\d", "3:30", "(", "a|b", "$5"])
def test_secrets_are_texts_not_patterns(secret):
    text, withheld = redact(f"it is {secret} here, not 7", [secret])
    assert (text, len(withheld)) == (f"it is {WITHHELD} here, not 7", 1)


@given(st.text(max_size=40), st.text(max_size=40), st.sampled_from(["green_box", "Veronica", "three hives"]))
def test_a_secret_between_any_texts_is_withheld(before, after, secret):
    redacted, withheld = redact(f"{before} {secret} {after}", [secret])
    assert len(withheld) >= 1
    assert not re.search(rf"(?<!\w){secret}(?!\w)", redacted)


@pytest.mark.parametrize("text", ["答案是红色的盒子吧", "红色的盒子"])
def test_a_secret_in_a_script_without_blanks_is_found(text):
    blanked, withheld = redact(text, ["红色的盒子"])
    assert len(withheld) == 1 and "红" not in blanked


FORMS = [
    "Wrap it in <answer> tags.",
    "You wrote no <answer> tag. End with <answer>LETTER</answer>, as in <answer></answer>.",
    "Put the place between <answer> and </answer>.",
    "Write <answer>PLACE</answer>, <answer>NAME, NAME</answer> or <answer>NUMBER</answer>.",
    "Use <answer>...</answer>, <answer>[your choice here]</answer> or <answer>X</answer>.",
]


@pytest.mark.parametrize("text", FORMS)
def test_a_form_without_an_answer_stays(text):
    choices = Choices({"A": "the green box", "B": "mill"}, "Which?")
    assert redact(text, ["green_box", "mill"], choices) == redact(text, ["green_box"]) == (text, [])


@pytest.mark.parametrize("inner", ["C", "a", "option a", "the letter C", "green box", "mill", "A or B", "yes"])
def test_a_form_with_an_answer_is_withheld(inner):
    text, withheld = redact(f"No <answer> tag: <answer>{inner}</answer>", ["green_box", "mill", "yes", "no"])
    assert withheld and text == f"No <answer> tag: {WITHHELD}"


def test_the_prompts_own_form_stays_as_a_whole_alone():
    prompt = "Think, then write <answer>yes</answer> or <answer>no</answer>"
    for form in (
        "<answer>yes</answer> or <answer>no</answer>",
        "`<answer>yes</answer>`, `<answer>no</answer>`",
        "yes/no",
    ):
        assert redact(f"End with {form}.", ["yes", "no"], prompt=prompt) == (f"End with {form}.", [])
    assert redact("It is <answer>no</answer>.", ["yes", "no"], prompt=prompt)[0] == f"It is {WITHHELD}."
    letters = "<answer>A</answer> or <answer>B</answer>"
    choices = Choices({"A": "warm", "B": "blunt"}, letters)
    text, withheld = redact(f"Not B. End with {letters}.", ["warm", "blunt"], choices, letters)
    assert (text, withheld) == (f"Not {WITHHELD}. End with {letters}.", ["B"])
