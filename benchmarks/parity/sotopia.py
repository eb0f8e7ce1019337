"""Sotopia's two rewards beside the original's code and the authors', on the same invented answers of the judge."""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from benchmarks.parity.comparison import Comparison, Score, authors_names
from soul.tasks.sotopia import RANGES, headline_of, weighted_of

_LOW, _HIGH = ({name: bounds[end] for name, bounds in RANGES.items()} for end in (0, 1))
_PLAIN = {"believability": 8, "relationship": 1, "knowledge": 4, "secret": 0, "social_rules": -2}
CASES: tuple[Mapping[str, int], ...] = (
    _LOW,
    _HIGH,
    {**_PLAIN, "financial_and_material_benefits": 2, "goal": 7},
    {**_HIGH, "goal": 0},  # the weighted reward loses a third, the mean a quarter
    {**_LOW, "goal": 10},
)


def _original(number: Callable[[Mapping[str, Any]], float]) -> Callable[[Path], Score]:
    """What the original makes of a judge's answer; `number` takes one value of its result."""

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
        code = authors_names(clone / "agents" / "sotopia" / "agent.py", wanted, given)
        texts = dict.fromkeys(("scenario", "actor_name", "actor_background", "actor_goal", "partner_name"), "")

        def score(case: Mapping[str, int]) -> float:
            answers.append(case)
            evaluate = code["evaluate_episode_single"]
            return number(asyncio.run(evaluate(conversation_log=[], structured_output=True, **texts)))

        return score

    return scores


def _authors(clone: Path) -> Score:
    given = {"defaultdict": defaultdict, "validate_call": lambda function: function}
    path = clone / "sotopia" / "envs" / "evaluators.py"
    code = SimpleNamespace(**authors_names(path, ("_reduce",), given))

    def score(episode: dict[str, int]) -> float:
        reduced, _ = code._reduce([((name, value), "") for name, value in episode.items()])
        return float(reduced["overall_score"]) / 10

    return score


COMPARISONS: list[Comparison] = [
    Comparison(
        evaluation_set="sotopia",
        metric="overall (headline)",
        follows="authors",
        differs="the mean of the seven scores is the authors'; the paper's number is a tenth of it. One judge scores "
        "the policy's seat alone, with instructions of our own",
        repository="sotopia",
        cases=CASES,
        ours=headline_of,
        authors=_authors,
    ),
    Comparison(
        evaluation_set="sotopia",
        metric="overall (headline)",
        follows="paper",
        repository="OdysSim",
        cases=CASES,
        ours=headline_of,
        authors=_original(lambda result: 0.1 * float(result["actor_avg"])),
    ),
    Comparison(
        evaluation_set="sotopia",
        metric="weighted (tasks.sotopia.reward=weighted)",
        follows="original",
        differs="the original divides it by 2 or 4 in training where its judge of reward hacking objects; ours reports "
        "reward_hacking as a metric of its own",
        repository="OdysSim",
        cases=CASES,
        ours=weighted_of,
        authors=_original(lambda result: float(result["reward"])),
    ),
]
