"""HumanLLM: which rankings are read, and the reciprocal rank; its authors' own code is not public."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Optional

from benchmarks.parity.comparison import Comparison, Score, authors_names
from soul import examples
from soul.tasks.humanllm import HumanLLM, HumanLLMRow

_TASK = HumanLLM()
_ROW = HumanLLMRow.model_validate({"index": 0, **examples.load("humanllm").record(0)})
_GOLD = _TASK.gold(_ROW)
_OTHERS = [letter for letter in "ABCDEF" if letter != _GOLD]
_FIRST = ",".join([_GOLD, *_OTHERS[:4]])
_THIRD = ",".join([*_OTHERS[:2], _GOLD, *_OTHERS[2:4]])
RANKINGS = [_FIRST, _THIRD, _THIRD.replace(",", ", "), _FIRST.lower(), f"{_FIRST}.", _GOLD, f"{_GOLD},{_THIRD}", ""]


def _reciprocal(letters: list[str]) -> float:
    return 1.0 / (letters.index(_GOLD) + 1) if _GOLD in letters else 0.0


def _ours(said: str) -> float:
    read = _TASK.read(_ROW, f"<answer>{said}</answer>", False)
    return _reciprocal(read.split(",") if read else [])


def _theirs(clone: Path) -> Score:
    names = ("TOP_K", "LETTERS", "ANSWER_PATTERN", "_predict_ranking")
    given = {"re": re, "Optional": Optional}
    read = authors_names(clone / "agents" / "humanllm" / "agent.py", names, given)["_predict_ranking"]
    candidates = list(_ROW.candidates)

    def score(said: str) -> float:
        places = read(f"<answer>{said}</answer>", candidates) or []
        return _reciprocal([chr(ord("A") + place) for place in places])

    return score


COMPARISONS = [
    Comparison(
        "humanllm",
        "mrr@5 (headline)",
        "original",
        "ours also reads lower-case letters, spaces between them and a full stop, unless strict_answers",
        "OdysSim",
        RANKINGS,
        _ours,
        _theirs,
    ),
]
