"""Humanual: agents/humanual of the paper's own public code (OdysSim) beside `soul.tasks.humanual`."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from benchmarks.parity.comparison import Comparison, Score, authors_names
from soul.metrics.overlap import token_f1
from soul.tasks.humanual import length_factor

SETS = "humanual_book, _chat, _email, _news, _opinion, _politics"
LONG = "i would not go back there even if the food were free because nobody looked at us for half an hour at all"


class Texts(NamedTuple):
    """What a model wrote, and what the person wrote."""

    said: str
    gold: str


TEXTS = [
    Texts(LONG, LONG),
    Texts("never again", LONG),
    Texts("I don't know, it's half-baked.", LONG),
    Texts("never again", "not for me"),
    Texts("The food, the wait!", "the food was not worth the wait"),
    Texts("", LONG),
]


def _theirs(name: str) -> Callable[[Path], Score]:
    def load(clone: Path) -> Score:
        names = ("_TOKEN_RE", "_tokenize", name)
        function = authors_names(clone / "agents" / "humanual" / "agent.py", names, {"re": re})[name]
        return lambda texts: float(function(*texts))

    return load


_JUDGED = (
    "The same six dimensions, each from 0 to 1, and their mean times the length factor; the judge's prompt is ours, "
    "and the same one judges a refined text."
)
COMPARISONS = [
    Comparison(
        SETS,
        "length_factor",
        "original",
        'A word with an apostrophe or hyphen ("don\'t") is one word here and two in the original.',
        "OdysSim",
        TEXTS,
        lambda texts: length_factor(*texts),
        _theirs("_length_factor"),
    ),
    Comparison(
        SETS,
        "lexical_f1",
        "original",
        "Articles do not count and apostrophes join words here, as in SQuAD; the original counts and splits them.",
        "OdysSim",
        TEXTS,
        lambda texts: token_f1(*texts),
        _theirs("_lexical_f1"),
    ),
    Comparison(SETS, "score (headline)", "original", _JUDGED),
]
