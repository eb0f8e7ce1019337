"""ParaToMi: what the scoring of PercepToM and thought-tracing does, beside `soul.tasks.paratomi`.

Their code asks for a sentence and checks inside of its main loop whether the gold place is in it, so that there is no
function to call; the cases below are its rule.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from benchmarks.parity.comparison import Comparison, Score
from soul import tasks
from soul.task_types import Episode

_ROW = {
    "index": 0,
    "story": [
        "Isla entered the garden.",
        "The gloves are in the crate.",
        "Isla moved the gloves to the treasure_chest.",
    ],
    "question": "Where will Isla look for the gloves?",
    "cands": ["garden", "crate", "treasure_chest"],
    "correct_answer": "treasure_chest",
}
ANSWERS = [
    "treasure_chest",
    "In the treasure chest.",
    "in the treasure_chest in the garden",
    "the treasure_chests",
    "crate",
]


def _ours(said: str) -> float:
    task = tasks.load("paratomi")
    episode = Episode({"policy": [{"role": "assistant", "content": f"<answer>{said}</answer>"}]})
    verdict = task.judge(task.row_type.model_validate(_ROW), episode, None)  # type: ignore[arg-type]  # by rule
    return asyncio.run(verdict).reward


def _rule(clone: Path) -> Score:
    source = (clone / "revised_tomi" / "test_tomi.py").read_text(encoding="utf-8")
    if "['answer'].lower() in prediction.lower()" not in source:
        raise ValueError(f"{clone}: the rule that is compared here is not in revised_tomi/test_tomi.py any more")
    return lambda said: float(str(_ROW["correct_answer"]).replace("_", " ") in said.lower().replace("_", " "))


_READING = "theirs is right wherever the place is a part of the answer, also beside other places"
COMPARISONS: list[Comparison] = [
    Comparison("paratomi", "accuracy (headline)", "original", _READING, "thought-tracing", ANSWERS, _ours, _rule),
]
