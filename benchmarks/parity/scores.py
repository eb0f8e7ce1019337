"""Rewards and counts beside public code: SimArena, SocSci210, Sotopia, and TwinVoice's history."""

import asyncio
import json
import logging
import tempfile
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple, Optional

from benchmarks.parity.comparison import Comparison, Score, authors_names, authors_score
from data import twinvoice
from soul.tasks.sim_arena import session_scores
from soul.tasks.sotopia import RANGES, headline_of, weighted_of

# --- SimArena: agents/sim_arena of the paper's own public code (OdysSim)


class Session(NamedTuple):
    """A judge's answers about one session: two Likert scores, marks of features, and the rating of a document."""

    writing: int
    interaction: int
    writing_marks: Sequence[bool] = ()
    interaction_marks: Sequence[bool] = ()
    rating: int | None = None


_MATH = [
    Session(1, 1, (), (False, False)),
    Session(4, 2, (), (True, False)),
    Session(5, 5, (), (True, True)),
    Session(5, 3),
]
_DOC = [
    Session(1, 1, (False,), (False,), 1),
    Session(4, 3, (True, False), (True,), 7),
    Session(4, 3, (), (True,), 7),
    Session(4, 3, (True,), (True,)),
]


def _likeness(session: Session) -> float:
    answer: dict[str, Any] = {
        "writing_style": {"similarity": session.writing},
        "interaction_style": {"similarity": session.interaction},
    }
    features = {"writing_features": session.writing_marks, "interaction_features": session.interaction_marks}
    for part, marks in features.items():
        if marks:
            answer[part] = {str(number): {"fulfilled": mark} for number, mark in enumerate(marks)}
    if session.rating is not None:
        answer["document"] = {"rating": session.rating}
    return session_scores(answer)[0]


def _their_likeness(kind: str) -> Callable[[Path], Score]:
    def load(clone: Path) -> Score:
        path = clone / "agents" / "sim_arena" / f"agent_{kind}.py"
        code = SimpleNamespace(**authors_names(path, ("_mean", "_norm"), {"Optional": Optional}))

        def score(session: Session) -> float:  # the mean at the end of agent_loop, which also plays and judges
            styles = [code._norm(session.writing, 5), code._norm(session.interaction, 5)]
            marks = [code._mean([*session.interaction_marks])]
            if kind == "doc":
                rating, writing = code._norm(session.rating, 10), code._mean([*session.writing_marks])
                return float(code._mean([rating, *styles, writing, *marks]))
            return float(code._mean([*styles, *marks]))

        return score

    return load


# --- Sotopia: both rewards, beside the original's code and the authors'

_LOW, _HIGH = ({name: bounds[end] for name, bounds in RANGES.items()} for end in (0, 1))
_PLAIN = {"believability": 8, "relationship": 1, "knowledge": 4, "secret": 0, "social_rules": -2}
_JUDGED: tuple[Mapping[str, int], ...] = (
    _LOW,
    _HIGH,
    {**_PLAIN, "financial_and_material_benefits": 2, "goal": 7},
    {**_HIGH, "goal": 0},  # the weighted reward loses a third, the mean a quarter
    {**_LOW, "goal": 10},
)


def _original(number: Callable[[Mapping[str, Any]], float]) -> Callable[[Path], Score]:
    """The original's result for a judge's answer; `number` takes one value of its result."""

    def scores(clone: Path) -> Score:
        answers: list[Mapping[str, int]] = []

        async def call_openai_parse(*_: Any, **__: Any) -> dict[str, Any]:
            return {name: {"reasoning": "Turn 1.", "score": score} for name, score in answers[-1].items()}

        wanted = ("DIMENSION_RANGES", "DIMENSION_WEIGHTS", "normalize_score", "evaluate_episode_single")
        given = {
            "asyncio": asyncio,
            "DIMENSIONS": list(RANGES),
            "logger": logging.getLogger(__name__),
            "call_openai_parse": call_openai_parse,
            "get_judge_model": str,
            "get_judge_reasoning": str,
            "EvalResultSingle": None,
            "_build_eval_prompt_single": lambda **_: "",
        }
        evaluate = authors_names(clone / "agents" / "sotopia" / "agent.py", wanted, given)["evaluate_episode_single"]
        texts = dict.fromkeys(("scenario", "actor_name", "actor_background", "actor_goal", "partner_name"), "")

        def score(case: Mapping[str, int]) -> float:
            answers.append(case)
            return number(asyncio.run(evaluate(conversation_log=[], structured_output=True, **texts)))

        return score

    return scores


def _reduced(clone: Path) -> Score:
    given = {"defaultdict": defaultdict, "validate_call": lambda function: function}
    code = SimpleNamespace(**authors_names(clone / "sotopia" / "envs" / "evaluators.py", ("_reduce",), given))
    return lambda episode: float(code._reduce([((n, v), "") for n, v in episode.items()])[0]["overall_score"]) / 10


# --- TwinVoice: twinvoice/discriminative of github.com/TwinVoice/TwinBench beside `data.twinvoice`

_HISTORIES = [3, 30, 45]  # lines that a character said before the question


def _history(lines: int) -> float:
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


def _their_history(format_history: Callable[..., str]) -> Score:
    def score(lines: int) -> float:
        said = [{"chunk_id": n, "utterance": f"line {n}"} for n in range(lines)]
        return float(len(format_history(said, max_items=30).splitlines()))  # 30: the default of --history-max

    return score


_HEADLINE = "overall (headline)"
COMPARISONS = [
    Comparison("sim_math", "likeness (headline)", "OdysSim", _MATH, _likeness, _their_likeness("math")),
    Comparison("sim_doc", "likeness (headline)", "OdysSim", _DOC, _likeness, _their_likeness("doc")),
    Comparison("sotopia", _HEADLINE, "sotopia", _JUDGED, headline_of, _reduced),
    Comparison(
        *("sotopia", _HEADLINE, "OdysSim", _JUDGED, headline_of),
        _original(lambda result: 0.1 * float(result["actor_avg"])),
    ),
    Comparison(
        *("sotopia", "weighted (tasks.sotopia.reward=weighted)", "OdysSim", _JUDGED, weighted_of),
        _original(lambda result: float(result["reward"])),
    ),
    Comparison(
        *("twinvoice", "lines of history", "TwinBench", _HISTORIES, _history),
        authors_score("twinvoice/discriminative/dimension_3/evaluate.py", "format_history", _their_history),
    ),
]
