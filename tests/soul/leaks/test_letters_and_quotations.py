"""What points at an option or quotes one, on an invented question; on real rows: `test_redaction_on_real_rows.py`."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from soul.leaks.quotations import Choices
from soul.leaks.redaction import WITHHELD, redact
from tests.soul.leaks.leaking_critiques import LEAKS

OPTIONS = {
    "A": "She waits at the door until her brother comes home.",
    "B": "She waits at the door and then calls the bailiff.",
    "C": "She leaves by night.",
    "D": "mill",
}
STORY = (
    "Ada and Mr. B met the boy in Class C at the mill. She waits at the door every day. J. D. Vance wrote to A. Brook. "
    "Let c be the number of mills, and C = 2 + c."
)
CHOICES = Choices(OPTIONS, f"{STORY}\n" + "\n".join(f"{letter}. {text}" for letter, text in OPTIONS.items()))


def guarded(text):
    return redact(text, [" "], CHOICES)[0]


@pytest.mark.parametrize("letter", "ABCD")
@pytest.mark.parametrize("leak", LEAKS)
def test_a_letter_that_points_is_withheld(leak, letter):
    other = "B" if letter == "A" else "A"
    text = guarded(leak.replace("{L}", letter).replace("{O}", other))
    assert WITHHELD in text and not re.search(rf"(?<![A-Za-z])[{letter}{other}](?![A-Za-z])", text)


@pytest.mark.parametrize(
    "text",
    [
        "Mr. B was there, and so was the boy in Class C.",
        "As J. D. Vance wrote, it is hard.",
        "A. Brook is the one to watch.",
        "You forgot that C = 2 + c.",
        "Look at c again, and at how many mills there are.",
        "Write <b>more</b>, 100% \\n of it; \\b and \\c are marks.",
        "E is no option here, and Z is none.",
    ],
)
def test_letters_that_the_story_holds_stay(text):
    assert guarded(text) == text


@pytest.mark.parametrize(
    "text, left",
    [
        ("Say until her brother comes home.", "Say [withheld]."),
        ("Her brother comes home.", "Her brother comes home."),  # four words of ten
        ("Until Her Brother - comes home, she is there.", "[withheld], she is there."),
        ("And then calls the bailiff: that is it.", "[withheld]: that is it."),
        ("She leaves by night, of course.", "[withheld], of course."),
        ("She waits at the door every day.", "She waits at the door every day."),  # the story says it
        ("She waits at the door a lot.", "She waits at the door a lot."),  # so do two options
        ("She leaves by day.", "[withheld] day."),  # three words of four
        ("until her aunt comes home", "until her aunt comes home"),
    ],
)
def test_a_run_of_words_of_one_option_alone_is_withheld(text, left):
    assert guarded(text) == left


def test_of_two_options_each_is_the_first_or_the_second():
    two = Choices({"A": "yes", "B": "no"}, "Is it?")
    for text in ("The first is better.", "He means the latter.", "take the second"):
        assert len(redact(text, [], two)[1]) == 1
    for text in ("The first impression counts.", "the second time", "She came first."):
        assert redact(text, [], two) == (text, [])
    assert redact("The answer is no, not yes.", ["yes", "no"], two)[0].count(WITHHELD) == 2
    assert redact("There is no doubt, and no one left.", ["yes", "no"], two)[1] == []


texts = st.text(alphabet="ABC abc.,'()-=I \u9009\n*", max_size=60)


@given(texts, st.lists(texts, max_size=3), texts)
def test_the_guard_never_raises_and_counts_every_change(text, options, prompt):
    choices = Choices(dict(zip("ABC", options, strict=False)), prompt)
    redacted, withheld = redact(text, options, choices)
    assert (len(withheld) > 0) == (redacted != text)
