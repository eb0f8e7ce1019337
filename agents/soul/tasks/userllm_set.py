"""The score of a set of UserLLM: the six metrics of the paper (sections 5 and C.10), from episodes and verdicts."""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet

from soul.judge.call.untrusted import contentless
from soul.metrics.set_metrics import Edge, Outcome, Ratio, SetMetric, jaccard_pairs
from soul.task_types import Scored
from soul.tasks.userllm_row import UserLLMRow
from soul.tasks.userllm_turn import Turn, spoken, turn_tokens

F1 = "termination_f1"
MEANS = ("role_adherence", "intent_adherence", "intent_decomposition", "human_likeness")


def set_metrics(rows: int, outcomes: Sequence[Outcome]) -> Sequence[SetMetric]:
    """The metrics of a set (see `Task.set_metrics`).

    The rows decide which metrics are defined: termination F1 needs a true last turn, diversity two first turns.
    """
    shares = [_shares(outcome.row, outcome.scored) for outcome in outcomes]
    any_last = any(outcome.row.source == "prism" and outcome.row.is_last_turn for outcome in outcomes)
    first = [_first_turn(outcome.row, outcome.scored) for outcome in outcomes]
    return (
        *(
            Ratio.from_outcomes(name, rows, outcomes, [share.get(name) for share in shares])
            for name in (*MEANS, *((F1,) if any_last else ()))
        ),
        jaccard_pairs("first_turn_diversity", outcomes, first),
    )


def _shares(row: UserLLMRow, scored: Scored | Edge) -> dict[str, tuple[float, float]]:
    """The contribution of one episode to the metrics of a set: metric -> (numerator, denominator).

    If the verdict lacks a metric of the row, the score is 0: the episode has no text to judge.
    """
    if isinstance(scored, str):
        value = float(scored == "best")
        ends = row.is_last_turn == (scored == "best")
        return {name: (value, 1.0) for name in _means(row)} | _f1(row, ends)
    metrics = scored.verdict.metrics
    if row.source != "prism":
        return {name: (metrics.get(name, 0.0), 1.0) for name in _means(row)}
    turn = spoken(scored.episode.answer)
    if _rightly_silent(row, turn):
        return _f1(row, turn.ends)
    return {
        "intent_decomposition": (1 - metrics.get("intent_overlap", 1.0), 1.0),
        "human_likeness": (metrics.get("human_likeness", 0.0), 1.0),
    } | _f1(row, turn.ends)


def _means(row: UserLLMRow) -> Sequence[str]:
    """The metrics that average over rows like this one."""
    if row.source == "prism":
        return ("intent_decomposition", "human_likeness")
    return ("role_adherence",) if row.source == "commonsense_qa" else ("intent_adherence",)


def _f1(row: UserLLMRow, ends: bool) -> dict[str, tuple[float, float]]:
    """The terms of a prism row in F1 = 2 tp / (2 tp + fp + fn), as (numerator, denominator)."""
    if row.source != "prism":
        return {}
    return {F1: (2.0 * (ends and row.is_last_turn), float(ends + row.is_last_turn))}


def _first_turn(row: UserLLMRow, scored: Scored | Edge) -> AbstractSet[str] | Edge | None:
    """The tokens of a first turn of prism, an empty set if it has no text; None if the row has no such turn."""
    if row.source != "prism" or row.conversation:
        return None
    if isinstance(scored, str):
        return scored
    turn = spoken(scored.episode.answer)
    if contentless(turn.text):
        return None if _rightly_silent(row, turn) else frozenset()
    return turn_tokens(turn.text)


def _rightly_silent(row: UserLLMRow, turn: Turn) -> bool:
    """Whether the turn is the end token alone, on the true last turn of a prism conversation."""
    return row.is_last_turn and turn.only_ends
