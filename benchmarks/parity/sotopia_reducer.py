"""Sotopia: the overall score of sotopia/envs/evaluators.py beside `soul.tasks.sotopia`."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from types import SimpleNamespace

from benchmarks.parity.comparison import Comparison, Score, authors_names
from soul.tasks.sotopia import RANGES, headline_of

LOWEST = {name: low for name, (low, _) in RANGES.items()}
HIGHEST = {name: high for name, (_, high) in RANGES.items()}
EPISODES = [LOWEST, HIGHEST, {**HIGHEST, "goal": 3, "secret": -4, "relationship": -2}, dict.fromkeys(RANGES, 0)]


def _theirs(clone: Path) -> Score:
    given = {"defaultdict": defaultdict, "validate_call": lambda function: function}
    path = clone / "sotopia" / "envs" / "evaluators.py"
    code = SimpleNamespace(**authors_names(path, ("_reduce",), given))

    def score(episode: dict[str, int]) -> float:
        reduced, _ = code._reduce([((name, value), "") for name, value in episode.items()])
        return float(reduced["overall_score"]) / 10

    return score


COMPARISONS = [
    Comparison(
        "sotopia",
        "overall",
        "authors",
        "The mean of the seven scores is the authors'; the paper's number is a tenth of it. One judge scores the "
        "policy's seat alone, with instructions of our own.",
        "sotopia",
        EPISODES,
        headline_of,
        _theirs,
    )
]
