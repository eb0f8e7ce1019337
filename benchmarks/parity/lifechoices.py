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


def _ours(said: str) -> float:
    task = tasks.load("lifechoices")
    record = {"index": 0, "character_name": "Ada", "input_text": "-", "Multiple Choice Question": _QUESTION}
    episode = Episode({"policy": [{"role": "assistant", "content": f"<answer>{said}</answer>"}]})
    verdict = task.judge(task.row_type.model_validate(record), episode, None)  # type: ignore[arg-type]  # by rule
    return asyncio.run(verdict).reward


def _theirs(clone: Path) -> Score:
    types: dict[str, Any] = {"List": list, "Dict": dict, "Optional": SimpleNamespace}
    evaluate = authors_names(clone / "test_llms.py", ("evaluate_model",), types)["evaluate_model"]

    def score(said: str) -> float:
        with redirect_stdout(io.StringIO()):  # it prints the accuracy
            data = SimpleNamespace(data=[[{"Multiple Choice Question": _QUESTION}]])
            return float(evaluate(data, "", lambda _: said))

    return score


_READING = "theirs accepts a bare letter only, as strict_answers does; neither prompt names the book"
COMPARISONS: list[Comparison] = [
    Comparison("lifechoices", "accuracy (headline)", "original", _READING, "LifeChoice", ANSWERS, _ours, _theirs),
]
