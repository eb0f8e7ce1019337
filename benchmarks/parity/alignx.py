"""AlignX: how the answer is read, and what of the user is shown, beside the original's code."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from benchmarks.parity.comparison import Comparison, Score, authors_names
from soul.answers.extraction import tagged_letter
from soul.tasks.alignx import AlignX, AlignXRow

SETS = "alignx_demo, _pair, _ugc, _arbitrary, _history16"
# Answers to a question whose right letter is A.
ANSWERS = (
    "<answer>A</answer>",
    "Blunt words suit them. <answer> A </answer>",
    "<answer>B</answer>",
    "A",
    "<answer>a</answer>",
    "<answer>Response A</answer>",
    "<answer>**A**</answer>",
    "<answer>A or B</answer>",
    "<answer>B</answer> No: <answer>A</answer>",
)
_PAIR = {"prompt": "Tea?", "chosen": "No.", "rejected": "How kind."}
_TEXTS = {"index": 0, "raw_prompt": "How do I say it?", "chosen": "Just say it.", "rejected": "If I may, perhaps,"}
USERS: tuple[dict[str, Any], ...] = (
    {**_TEXTS, "demographic": "A nurse.", "profile": "Likes blunt words."},
    {**_TEXTS, "demographic": "", "profile": "Likes blunt words."},
    {**_TEXTS, "demographic": "A nurse.", "icl_pairs": [_PAIR] * 3, "ugc": [{"prompt": "Rain", "comment": "Ugh."}]},
    _TEXTS,
)
_SHOWN = ("A nurse.", "Likes blunt words.", "How kind.", "Ugh.")


def _ours(strict: bool) -> Score:
    return lambda text: float(tagged_letter(text, {"A": "Just say it.", "B": "If I may,"}, strict=strict) == "A")


def _original_letter(clone: Path) -> Score:
    read = authors_names(_file(clone), ("ANSWER_PATTERN", "_predict_choice"), {"re": re})["_predict_choice"]
    return lambda text: float(read(text) == "A")


def _original_prompt(clone: Path) -> Score:
    shown = authors_names(_file(clone), ("_format_persona_context",), {})["_format_persona_context"]
    return lambda row: _shown(shown(row))


def _shown(text: str) -> float:
    """The texts about the user that are shown, as one number: each occurrence counts in its own digit."""
    return float(sum(text.count(part) * 10**place for place, part in enumerate(_SHOWN)))


def _our_prompt(record: dict[str, Any]) -> float:
    return _shown(AlignX().prompt(AlignXRow.model_validate(record))[0]["content"])


def _file(clone: Path) -> Path:
    return clone / "agents" / "alignx" / "agent.py"


_ACCURACY: dict[str, Any] = {"evaluation_set": SETS, "repository": "OdysSim", "cases": ANSWERS}

COMPARISONS: list[Comparison] = [
    Comparison(
        metric="accuracy (headline)",
        follows="original",
        differs='ours also reads a lower-case letter, bold type and "Response A", and of two tags the last; '
        "with strict_answers=true only the bare letter",
        ours=_ours(strict=False),
        authors=_original_letter,
        **_ACCURACY,
    ),
    Comparison(
        metric="accuracy_strict",
        follows="original",
        differs="a lower-case letter counts as the upper-case one, and of two tags the last counts",
        ours=_ours(strict=True),
        authors=_original_letter,
        **_ACCURACY,
    ),
    Comparison(
        evaluation_set=SETS,
        metric="what of the user is shown",
        follows="original",
        repository="OdysSim",
        cases=USERS,
        ours=_our_prompt,
        authors=_original_prompt,
    ),
    Comparison(
        evaluation_set=SETS,
        metric="accuracy",
        follows="original",
        differs="AlignX's own code asks for no answer: it compares how much the user's description raises the "
        "log-likelihood of either response, which an API does not give",
    ),
]
