"""TwinVoice: twinvoice/discriminative of github.com/TwinVoice/TwinBench beside `soul.tasks` and `data.twinvoice`."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.parity.comparison import Comparison, Score, authors_names
from data import twinvoice

# How many lines a character said before the question, and where the lines end: the chunk of the question.
HISTORIES = [3, 30, 45]


def _ours(lines: int) -> float:
    said = [{"chunk_id": f"{n:05}", "utterance": f"line {n}"} for n in range(lines)]
    people = {"characterList": {"C": {"NameCanonical": "Ada", "UtteranceHistory": said}}}
    options = {"options": {letter: letter.lower() for letter in "ABCD"}, "answer": "A"}
    question = {"chunk_id": "99999", "speaker": "Ada", "context": "What now?", "mcq": options}
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / name for name in ("choices.jsonl", "profiles.jsonl")]
        for path, content in zip(paths, (question, people), strict=True):
            path.write_text(json.dumps(content), encoding="utf-8")
        (record,), *_ = twinvoice.convert(paths)
    return float(len(json.loads(record["conversation_history"])))


def _theirs(clone: Path) -> Score:
    file = clone / "twinvoice" / "discriminative" / "dimension_3" / "evaluate.py"
    format_history: Any = authors_names(file, ("format_history",), {})["format_history"]

    def score(lines: int) -> float:
        said = [{"chunk_id": n, "utterance": f"line {n}"} for n in range(lines)]
        return float(len(format_history(said, max_items=30).splitlines()))  # 30: the default of --history-max

    return score


_HISTORY = "of the traits of a character, theirs shows the first eight of each kind, ours all"
COMPARISONS: list[Comparison] = [
    Comparison("twinvoice", "lines of history", "authors", _HISTORY, "TwinBench", HISTORIES, _ours, _theirs),
]
