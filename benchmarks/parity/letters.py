"""Social-R1, Mistakes and TwinVoice: how an answer with a letter is read, by public code and by `soul.answers`."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple, Optional

from benchmarks.parity.comparison import Comparison, Score, authors_names
from soul.answers.extraction import tagged_letter

OPTIONS = {"A": "the drawer", "B": "the shelf", "C": "the box", "D": "the bag"}


class Answer(NamedTuple):
    """What a model puts into the form that it is asked for, and the letter that is right."""

    said: str
    gold: str


ANSWERS = [
    Answer("B", "B"),
    Answer("b", "B"),
    Answer("(B)", "B"),
    Answer("B. the shelf", "B"),
    Answer("the shelf", "B"),
    Answer("B or C", "C"),
    Answer("", "A"),
    Answer("D", "B"),
]


def _ours(letters: str) -> Score:
    options = {letter: OPTIONS[letter] for letter in letters}
    return lambda answer: float(tagged_letter(f"<answer>{answer.said}</answer>", options) == answer.gold)


def _theirs(file: str, names: Sequence[str], form: Callable[[str], str]) -> Callable[[Path], Score]:
    """The last of the names is the function that reads an answer in this form."""

    def load(clone: Path) -> Score:
        given = {"re": re, "json": json, "Optional": Optional}
        read = authors_names(clone / file, names, given)[names[-1]]
        return lambda answer: float(read(form(answer.said)) == answer.gold)

    return load


def _tagged(said: str) -> str:
    return f"<answer>{said}</answer>"


_READING = (
    "Ours also reads a letter with its option's text, and the text alone; with strict_answers=true only brackets and a "
    "full stop around the letter remain."
)
COMPARISONS = [
    Comparison(
        "social_r1",
        "accuracy (headline)",
        "original",
        _READING,
        "OdysSim",
        ANSWERS,
        _ours("ABCD"),
        _theirs("agents/social_r1/agent.py", ("ANSWER_TAG_RE", "_extract_option_letter"), _tagged),
    ),
    Comparison(
        "social_r1",
        "accuracy",
        "original",
        "ToMBench takes the last capital letter from A to D anywhere in the text, and A if there is none; it asks five "
        "times, with the options in other orders, and takes the most frequent answer.",
        "ToMBench",
        ANSWERS,
        _ours("ABCD"),
        _theirs("get_results.py", ("extract_answer",), "[[{}]]".format),
    ),
    Comparison(
        "mistakes",
        "accuracy (headline)",
        "original",
        f"{_READING} Every option that the misconception leads to is right, where the row names several.",
        "OdysSim",
        ANSWERS,
        _ours("ABCD"),
        _theirs("agents/mistakes/agent.py", ("_extract_option_letter",), _tagged),
    ),
    Comparison(
        "twinvoice",
        "accuracy (headline)",
        "original",
        "The authors ask for JSON with a reason and a letter, read an upper-case or lower-case letter alone, and skip "
        "other answers; ours reads the answer tag and counts them as wrong.",
        "TwinBench",
        ANSWERS,
        _ours("ABCD"),
        _theirs(
            "twinvoice/discriminative/dimension_2/evaluate.py",
            ("parse_choice",),
            lambda said: json.dumps({"reasoning": "-", "choice": said}),
        ),
    ),
]
