"""Which texts are nearly the same, and that the index finds what comparing every pair finds."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from soul import examples
from soul.rows.near_text import LEAST_WORDS, NearTexts, words
from soul.rows.overlap import HeldOut
from soul.rows.task_files import parse_row
from tests.soul.samples import HITOM, PARATOMI

STORY = "Ann put the ripe tomato into the green crate and left the kitchen before Ben came in."


@pytest.mark.parametrize(
    "other",
    [
        STORY.upper().replace(" ", "\n "),
        STORY.replace("tomato", "tomato,").rstrip("."),
        STORY.replace("green crate", "green_crate"),
        STORY.replace("tomato", "melon"),
        STORY.replace("ripe ", ""),
        f"Once upon a time {STORY}",
    ],
)
def test_blanks_case_punctuation_and_a_changed_word_are_near(other):
    assert NearTexts([STORY]).find(other) == STORY


@pytest.mark.parametrize(
    "text, other",
    [
        (STORY, "Ben took the ripe melon out of the red box and entered the kitchen after Ann had left."),
        ("Where do bees live?", "Where do bears live?"),
        ("What is 12 + 5?", "What is 12 = 5?"),
        ("!", "?"),
    ],
)
def test_other_texts_are_not(text, other):
    assert NearTexts([text]).find(other) is None


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from([0.3, 0.6, 0.9]))
def test_the_index_finds_what_comparing_each_finds(seed, share):
    rng = random.Random(seed)
    texts = [" ".join(rng.choices("abc", k=rng.randint(LEAST_WORDS, 14))) for _ in range(20)]

    def pairs(text):
        said = words(text)
        return set(zip(said, said[1:], strict=False))

    near = [
        text
        for text in texts[:10]
        if len(pairs(text) & pairs(texts[10])) >= share * len(pairs(text) | pairs(texts[10])) - 1e-9
    ]
    assert bool(NearTexts(texts[:10], share).find(texts[10])) == bool(near)


def test_rows_are_compared_by_those_keys_that_are_texts():
    def row(task, record):
        return parse_row(task, {"index": 0, **record}, "file", 0)

    lines = HITOM["story"].split("\n")
    story = {**HITOM, "story": "\n".join([lines[0].replace("entered", "walked into"), *lines[1:]]).replace(".", " !")}
    evaluated, changed = row("hitom", HITOM), row("hitom", story)
    assert HeldOut([evaluated], near=0.6).shared(changed) and not HeldOut([evaluated]).shared(changed)
    # A story of ParaToMi is a list of people and places, and a prompt is mostly the task's instructions.
    other = [sentence.replace("Isla", "Mia") for sentence in PARATOMI["story"]]
    assert not HeldOut([row("paratomi", PARATOMI)], near=0.1).shared(row("paratomi", {**PARATOMI, "story": other}))
    first, second = (row("socsci210", examples.load("socsci210").record(number)) for number in (0, 1))
    assert HeldOut([first], near=0.1).shared(first) and not HeldOut([first], near=0.1).shared(second)
