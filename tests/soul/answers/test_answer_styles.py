"""What is read as an answer, style by style; and that reading takes time linear in the length of what was said.

Promise under test: what is unambiguous inside the asked tag is read however it is dressed, what is ambiguous is not,
and nothing outside of the tag or inside of thoughts counts.
"""

import pytest

from soul.answers.extraction import names_given, tagged_answer, tagged_letter
from soul.answers.thinking import without_thinking
from tests.soul.answers.answer_styles import LETTERS, OPTIONS, PLACES, THOUGHTS, WHOLE, WORDS


def place(text, strict):
    answer = tagged_answer(text)
    names = names_given(answer, PLACES, strict=strict) if answer else set()
    return names.pop() if len(names) == 1 else None


@pytest.mark.parametrize(
    "kind, said, read, strictly",
    [("letter", *row) for row in LETTERS] + [("word", *row) for row in WORDS],
)
def test_a_style(kind, said, read, strictly):
    text = f"Let me think.\n<answer>{said}</answer>"
    found = tuple(tagged_letter(text, OPTIONS, strict=s) if kind == "letter" else place(text, s) for s in (False, True))
    assert found == (read, strictly)


@pytest.mark.parametrize("text, letter", WHOLE)
def test_only_the_tag_counts(text, letter):
    assert tagged_letter(text, OPTIONS) == letter == tagged_letter(text, OPTIONS, strict=True)


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("opens, closes", THOUGHTS)
def test_a_thought_is_no_answer(opens, closes, strict):
    def read(text):
        return tagged_letter(text, OPTIONS, strict=strict)

    thought = f"{opens}It could be <answer>A</answer>, I guess."
    assert read(f"{thought}{closes}") is None
    assert read(thought) is None  # never closed: cut off in the middle of it
    assert read(f"{thought}{closes}<answer>B</answer>") == "B"
    assert read(f"<answer>B</answer>{thought}{closes}") == "B"
    assert read(f"<answer>B</answer>{thought}") == "B"
    assert read(f"It could be <answer>A</answer>.{closes}") is None  # the chat template opened it
    assert read(f"It could be <answer>A</answer>.{closes}<answer>B</answer>") == "B"
    assert read(f"<answer>{opens}A?{closes}B</answer>") == "B"


def test_a_tag_of_another_kind_closes_nothing():
    assert without_thinking("<think>a <reasoning>b</reasoning> <answer>A</answer>") == ""
    assert without_thinking("[THINK]a </think> b[/THINK]c") == "c"
    assert without_thinking("<think>a</think>b<reasoning>c</reasoning>d</think>e") == "bde"


def test_a_text_of_two_options_needs_its_letter():
    options = {"A": "box", "B": "Box"}
    assert [tagged_letter(f"<answer>{said}</answer>", options) for said in ("box", "B: box")] == [None, "B"]
