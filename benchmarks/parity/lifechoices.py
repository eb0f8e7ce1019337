"""LifeChoice: test_llms.py of github.com/airaer1998/LifeChoice beside `soul.tasks.lifechoices`."""

from __future__ import annotations

import asyncio
import io
from contextlib import redirect_stdout
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from benchmarks.parity.comparison import Comparison, Score, authors_names
from soul import tasks
from soul.task_types import Episode

_QUESTION = {"Scenario": "-", "Question": "-", "Options": ["w", "x", "y", "z"], "Correct Answer": "B"}
ANSWERS = ["B", "b", "A", "(B)", "Option B", "x", "no idea"]


def _metric(name: str) -> Score:
    return lambda said: _metrics(said)[name]


def _metrics(said: str) -> dict[str, float]:
    task = tasks.load("lifechoices")
    record = {"index": 0, "character_name": "Ada", "input_text": "-", "Multiple Choice Question": _QUESTION}
    episode = Episode({"policy": [{"role": "assistant", "content": f"<answer>{said}</answer>"}]})
    verdict = task.judge(task.row_type.model_validate(record), episode, None)  # type: ignore[arg-type]  # by rule
    return dict(asyncio.run(verdict).metrics)


def _theirs(clone: Path) -> Score:
    types: dict[str, Any] = {"List": list, "Dict": dict, "Optional": SimpleNamespace}
    evaluate = authors_names(clone / "test_llms.py", ("evaluate_model",), types)["evaluate_model"]

    def score(said: str) -> float:
        with redirect_stdout(io.StringIO()):  # it prints the accuracy
            data = SimpleNamespace(data=[[{"Multiple Choice Question": _QUESTION}]])
            return float(evaluate(data, "", lambda _: said))

    return score


_READING = "theirs accepts a bare capital letter only; neither prompt names the book"
_STRICT = "brackets and a full stop may be around our letter, and it may be a small one"
COMPARISONS: list[Comparison] = [
    Comparison(
        "lifechoices", "accuracy (headline)", "original", _READING, "LifeChoice", ANSWERS, _metric("accuracy"), _theirs
    ),
    Comparison(
        "lifechoices", "accuracy_strict", "authors", _STRICT, "LifeChoice", ANSWERS, _metric("accuracy_strict"), _theirs
    ),
]
