"""The numbers that FanToM's own code reports (github.com/skywalker023/fantom, eval_fantom.py), beside our accuracy.

Answers are read as that code reads them: a choice by the letter that the answer begins with, names as parts of words,
yes and no by a list of beginnings and phrases ("False", "doesn't know", and any answer that begins with "no").

Of a whole set, over the questions about information that somebody missed:

    all_correct                     share of question sets in which every answer is right ("ALL")
    all_correct_answerability, all_correct_info_access    the same for one kind of question
    f1_answerability, f1_info_access                      weighted F1 of yes and no

"ALL*" also counts beliefs in free words, which are compared by sentence embeddings. Our rows do not ask for them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from soul.answers.extraction import tagged_answer
from soul.metrics.overlap import f1_of_counts
from soul.metrics.set_metrics import (
    Outcome,
    Ratio,
    Runs,
    SetMetric,
    WeightedF1,
    group_runs,
    share_all_right,
)
from soul.task_types import Scored
from soul.tasks.fantom_row import FanToMRow

NAME = "accuracy_official"
_PARTS = {"answerability": "tom:answerability", "info_access": "tom:info_accessibility"}
# Where yes and no may stand in an answer, in the order in which they are looked for.
_BEGINNINGS = {"yes": ("yes", "true"), "no": ("no", "false")}
_PHRASES = {
    "yes": (" yes,", " yes ", " yes.", " knows "),
    "no": (" no,", " no ", " no.", " does not know ", " doesn't know "),
}


def official_score(row: FanToMRow, answer: str) -> float:
    """The official score of an answer, the text inside the tag: 0 or 1, and word F1 for facts."""
    gold, said = row.correct_answer, answer.lower()
    if row.kind == "choice":
        letter = "abcdefghijklmnopqrstuvwxyz"[int(gold)]  # type: ignore[arg-type]
        begins = said.startswith((f"({letter})", *(f"{letter}{mark}" for mark in ").:,")))
        return float(begins or f"({letter})" in said or said == letter)
    if row.kind == "list":
        right, wrong = (names if isinstance(names, list) else [] for names in (gold, row.wrong_answer))
        return float(
            all(name.lower() in said for name in right)
            and not any(name.lower() in said for name in wrong)
            and said != ""
        )
    if row.kind == "binary":
        return float(official_polarity(answer) == str(gold).partition(":")[0])
    return f1_of_counts(Counter(said.split()), Counter(str(gold).lower().split()))


def official_polarity(answer: str) -> str:
    """ "yes", "no", or "" for an answer that says neither."""
    said = answer.lower().strip("'").strip('"')
    for polarity, beginnings in _BEGINNINGS.items():
        if said.startswith(beginnings) or any(phrase in said for phrase in _PHRASES[polarity]):
            return polarity
    return ""


def set_metrics(rows: int, outcomes: Sequence[Outcome]) -> Sequence[SetMetric]:
    """The metrics of a whole set; see `Task.set_metrics`."""
    missed = [
        outcome
        for outcome in outcomes
        if outcome.row.missed_info_accessibility == "inaccessible" and outcome.row.kind != "fact"
    ]
    sets = [runs for runs in group_runs(missed, _official_set).values() if _is_complete(runs)]
    metrics: list[SetMetric] = [Ratio.from_groups("all_correct", rows, _shares(sets))]
    for name, kind in _PARTS.items():
        parts = [[[one for one in run if one.row.question_type.startswith(kind)] for run in runs] for runs in sets]
        metrics.append(Ratio.from_groups(f"all_correct_{name}", rows, _shares([part for part in parts if part[0]])))
        yes_no = [one for one in missed if one.row.question_type == f"{kind}:binary"]
        answers = [(official_polarity(_answer(one)), str(one.row.correct_answer).partition(":")[0]) for one in yes_no]
        metrics.append(WeightedF1.from_answers(f"f1_{name}", rows, yes_no, answers))
    return metrics


def _official_set(row: FanToMRow) -> str | None:
    return row.set_id if row.official_id else None


def _is_complete(runs: Runs) -> bool:
    """Whether all questions of a set have an answer; a row that does not say how many there are counts as all."""
    wanted = max(outcome.row.set_rows for outcome in runs[0])
    return len(runs[0]) >= wanted


def _shares(groups: Sequence[Runs]) -> list[tuple[Runs, float]]:
    return [(runs, share_all_right(runs, lambda one: official_score(one.row, _answer(one)) == 1.0)) for runs in groups]


def _answer(outcome: Outcome) -> str:
    assert isinstance(outcome.scored, Scored), outcome
    return tagged_answer(outcome.scored.episode.answer) or ""
