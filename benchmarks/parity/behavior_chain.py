"""BehaviorChain: pipeline/09_calculate_result.py of github.com/O-L1RU1/BehaviorChain beside `soul.tasks`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.parity.comparison import Comparison, Score, authors_names
from soul.tasks.behavior_chain import chain_scores

CHAINS = [[1, 1, 1, 1], [1, 1, 0, 1], [0, 1, 0, 1], [0, 0, 0], [0], [1], [0, 1, 1, 1, 0, 1]]


def _ours(place: int) -> Score:
    return lambda chain: chain_scores([link == 1 for link in chain])[place]


def _theirs(place: int) -> Callable[[Path], Score]:
    def authors(clone: Path) -> Score:
        name = "consecutive_accuracy_metric_normalized"
        function = authors_names(clone / "pipeline" / "09_calculate_result.py", (name,), {})[name]

        def score(chain: Sequence[int]) -> float:
            return float(function(chain)[place])

        return score

    return authors


_READING = (
    "theirs takes the letter before the last bracket, ours the one in the answer tag; theirs hides people's names"
)
COMPARISONS: list[Comparison] = [
    Comparison(
        "behaviorchain", "accuracy (headline)", "original", f"the mean over links, theirs over books; {_READING}"
    ),
    Comparison("behaviorchain", "chain_accuracy", "authors", "", "BehaviorChain", CHAINS, _ours(0), _theirs(0)),
    Comparison("behaviorchain", "longest_run", "authors", "", "BehaviorChain", CHAINS, _ours(1), _theirs(1)),
]
