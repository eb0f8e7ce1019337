"""UserLLM: agents/userllm of the paper's own public code (OdysSim) beside `soul.tasks.userllm`."""

from __future__ import annotations

import asyncio
import string
from collections.abc import Callable, Sequence
from itertools import combinations
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Optional

from benchmarks.parity.comparison import Comparison, Score, authors_names
from soul import tasks
from soul.metrics.lexical import jaccard_diversity
from soul.task_types import Episode
from soul.tasks.userllm_turn import intent_overlap, turn_tokens

CODE = Path("agents") / "userllm"
OPTIONS = ("cave", "barn", "night sky", "bridge", "sea")
ASKED = [
    "no idea, thats why i ask",
    "the cave i guess",
    "cave or barn?",
    "cave, barn or bridge",
    "an excavation, a barnacle, some seaweed",
    "the night-sky!",
    "cave barn night sky bridge sea, which one",
]
INTENT = "Explore how bees find flowers."
SAID = [
    "how do bees find flowers",
    "Bees! can bees see red?",
    "please not bees",
    "hello?",
    "bees_find 100%",
    "it's to be",
]
OPENINGS = [
    ["do bees see red?", "what of wasps?", "don't they sleep"],
    ["same thing", "same thing"],
    ["hi!", "hi", "\u4f60\u597d"],
]


def _role(said: str) -> float:
    task = tasks.load("userllm")
    record = {"source": "commonsense_qa", "intent": "Ask.", "choices": list(OPTIONS), "conversation_history": "User: ?"}
    row = task.row_type.model_validate({"index": 0, **record})
    episode = Episode({"policy": [{"role": "assistant", "content": said}]})
    return asyncio.run(task.judge(row, episode, None)).metrics["role_adherence"]  # type: ignore[arg-type]  # by rule


def _their_role(clone: Path) -> Score:
    import re

    code = authors_names(clone / CODE / "helpers.py", ["_normalize_for_choice_match"], {"re": re})
    normal = code["_normalize_for_choice_match"]

    def score(said: str) -> float:  # the rule of agent.py, whose function also calls models
        mentioned = sum(normal(option) in normal(said) for option in OPTIONS)
        return float(mentioned not in (1, 2, len(OPTIONS)))

    return score


def _their_overlap(clone: Path) -> Score:
    names = ("_STOPWORDS", "_tokenize", "_is_cjk_char", "_filter_tokens_for_overlap", "_intent_1gram_overlap")
    code = SimpleNamespace(**authors_names(clone / CODE / "helpers.py", names, {"string": string}))
    return lambda said: float(code._intent_1gram_overlap(INTENT, said))


def _diversity(turns: Sequence[str]) -> float:
    return jaccard_diversity([turn_tokens(turn) for turn in turns]) or 0.0


def _their_diversity(clone: Path) -> Score:
    given: dict[str, Any] = {"combinations": combinations, "Optional": Optional}
    name = "_first_turn_diversity_compatible"
    theirs: Callable[[Sequence[str]], float] = authors_names(clone / CODE / "agent.py", [name], given)[name]
    return lambda turns: float(theirs(turns))


_WITHOUT_CODE = [
    ("intent_adherence", "original", "The same two outcomes, read from a structured answer to a prompt of our own."),
    ("human_likeness", "paper", "A judge in place of Pangram, which is a paid service; another detector is an option."),
    ("termination_f1", "paper", "The same F1; our end token may stand anywhere in the turn."),
    ("mean_of_metrics (headline)", "paper", "The mean of all six; the original's is the mean of single rewards."),
]
COMPARISONS = [
    Comparison(
        "userllm",
        "role_adherence",
        "paper",
        "A turn that names all options scores 1, as the paper says, and 0 in the original.",
        "OdysSim",
        ASKED,
        _role,
        _their_role,
    ),
    Comparison(
        "userllm",
        "intent_overlap",
        "original",
        "The same overlap; the original adds it to the reward, we subtract it, as the paper says (lower is better).",
        "OdysSim",
        SAID,
        lambda said: intent_overlap(INTENT, said),
        _their_overlap,
    ),
    Comparison(
        "userllm",
        "first_turn_diversity",
        "original",
        "An empty turn counts as no diversity; the original leaves it out.",
        "OdysSim",
        OPENINGS,
        _diversity,
        _their_diversity,
    ),
    *(Comparison("userllm", metric, whose, differs) for metric, whose, differs in _WITHOUT_CODE),  # type: ignore[arg-type]
]
