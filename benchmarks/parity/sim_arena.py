"""SimArena: agents/sim_arena of the paper's own public code (OdysSim) beside `soul.tasks.sim_arena`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple, Optional

from benchmarks.parity.comparison import Comparison, Score, authors_names
from soul.tasks.sim_arena import session_scores


class Session(NamedTuple):
    """A judge's answers about one session: two Likert scores, marks of features, and the rating of a document."""

    writing: int
    interaction: int
    writing_marks: Sequence[bool] = ()
    interaction_marks: Sequence[bool] = ()
    rating: int | None = None


MATH = [
    Session(1, 1, (), (False, False)),
    Session(4, 2, (), (True, False)),
    Session(5, 5, (), (True, True)),
    Session(5, 3),
]
DOC = [
    Session(1, 1, (False,), (False,), 1),
    Session(4, 3, (True, False), (True,), 7),
    Session(4, 3, (), (True,), 7),
    Session(4, 3, (True,), (True,)),
]


def _ours(session: Session) -> float:
    answer: dict[str, Any] = {
        "writing_style": {"similarity": session.writing},
        "interaction_style": {"similarity": session.interaction},
    }
    for part, marks in (
        ("writing_features", session.writing_marks),
        ("interaction_features", session.interaction_marks),
    ):
        if marks:
            answer[part] = {str(number): {"fulfilled": mark} for number, mark in enumerate(marks)}
    if session.rating is not None:
        answer["document"] = {"rating": session.rating}
    return session_scores(answer)[0]


def _theirs(kind: str) -> Callable[[Path], Score]:
    def load(clone: Path) -> Score:
        path = clone / "agents" / "sim_arena" / f"agent_{kind}.py"
        code = SimpleNamespace(**authors_names(path, ("_mean", "_norm"), {"Optional": Optional}))

        def score(session: Session) -> float:  # the mean at the end of agent_loop, which also plays and judges
            marks = [code._mean([*session.interaction_marks])]
            rating = []
            if kind == "doc":
                marks = [code._mean([*session.writing_marks]), *marks]
                rating = [code._norm(session.rating, 10)]
            styles = [code._norm(session.writing, 5), code._norm(session.interaction, 5)]
            return float(code._mean([*rating, *styles, *marks]))

        return score

    return load


_DIFFERS = (
    "A part that a row lacks counts as 0 in the original and not at all here; the judge's prompts are ours. "
    "SimulatorArena itself correlates simulators with people and has no such score."
)
COMPARISONS = [
    Comparison("sim_math", "likeness (headline)", "original", _DIFFERS, "OdysSim", MATH, _ours, _theirs("math")),
    Comparison("sim_doc", "likeness (headline)", "original", _DIFFERS, "OdysSim", DOC, _ours, _theirs("doc")),
]
