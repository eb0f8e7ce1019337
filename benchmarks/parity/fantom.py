"""FANToM: eval_fantom.py of github.com/skywalker023/fantom beside `soul.tasks.fantom`."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from benchmarks.parity.comparison import Comparison, Score, authors_names
from soul import tasks
from soul.metrics.set_metrics import Outcome, SetScore
from soul.task_types import Episode, Scored

_WHO = {"correct_answer": ["Ann", "Bob"], "wrong_answer": ["Carl"], "question_type": "tom:answerability:list"}
_NO = {"correct_answer": "no", "question_type": "tom:answerability:binary"}
_YES = {**_NO, "correct_answer": "yes"}
_BELIEF = {
    "correct_answer": 1,
    "answer_choices": ["x", "y"],
    "question_type": "tom:belief:inaccessible:multiple-choice",
}
_FACT = {"correct_answer": "three hives", "question_type": "fact"}
READINGS = [
    *((_NO, said) for said in ("no", "False", "She doesn't know it.", "Nobody told her", "unknown", "yes and no")),
    *((_YES, said) for said in ("Yes.", "Eve knows this", "No, she knows it", "she does")),
    *((_WHO, said) for said in ("Ann, Bob", "Anna and Bobby", "Ann", "Ann, Bob, not Carl")),
    *((_BELIEF, said) for said in ("B", "(b)", "b) y", "Option B", "I choose (b)", "A")),
    *((_FACT, said) for said in ("three hives", "Three hives.", "the three hives")),
]
# Sets of questions, each with its answers: all right, one wrong, one unreadable.
_INFO = {"question_type": "tom:info_accessibility:binary"}, {"question_type": "tom:info_accessibility:list"}
_RIGHT = (
    (_BELIEF, "B"),
    (_WHO, "Ann, Bob"),
    (_NO, "no"),
    ({**_NO, **_INFO[0]}, "no"),
    ({**_WHO, **_INFO[1]}, "Ann, Bob"),
)
SETS = [[_RIGHT + ((_YES, said),) for said in ("yes", *others)] for others in (("yes",), ("no",), ("maybe", "no"))]


def _verdict(case: tuple[dict[str, Any], str]) -> Scored:
    task = tasks.load("fantom")
    row = task.row_type.model_validate({"index": 0, "context": "-", "question": "-", **case[0]})
    episode = Episode({"policy": [{"role": "assistant", "content": f"<answer>{case[1]}</answer>"}]})
    return Scored(episode, asyncio.run(task.judge(row, episode, None)))  # type: ignore[arg-type]  # scored by rule


def _of_the_set(metric: str) -> Score:
    def score(sets: Sequence[Any]) -> float:
        task = tasks.load("fantom")
        cases = [(number, case) for number, questions in enumerate(sets) for case in questions]
        shared = {"index": 0, "context": "-", "question": "-", "missed_info_accessibility": "inaccessible"}
        outcomes = [
            Outcome(
                place,
                1.0,
                task.row_type.model_validate({**shared, "set_id": f"{number}-0-0", **case[0]}),
                _verdict(case),
            )
            for place, (number, case) in enumerate(cases)
        ]
        return SetScore.from_metrics(len(cases), task.set_metrics(len(cases), outcomes)).parts[metric]

    return score


def _their_reading(clone: Path) -> Score:
    names = (
        "evaluate_mc_belief_q",
        "evaluate_list_q",
        "map_binary_answer_to_int",
        "compute_f1",
        "evaluate_fact_q",
        "yesno_to_int",
    )
    code = SimpleNamespace(**authors_names(clone / "eval_fantom.py", names, {"Counter": Counter}))

    def score(case: tuple[dict[str, Any], str]) -> float:
        row, said = case
        kind = row["question_type"]
        if kind.endswith(":multiple-choice"):
            return float(code.evaluate_mc_belief_q(None, row, said))
        if kind.endswith(":list"):
            return float(code.evaluate_list_q(None, row, said)[0])
        if kind.endswith(":binary"):
            return float(code.map_binary_answer_to_int(None, said) == code.yesno_to_int(None, row["correct_answer"]))
        return float(
            code.evaluate_fact_q(SimpleNamespace(compute_f1=lambda *texts: code.compute_f1(None, *texts)), row, said)
        )

    return score


def _f1(**answers: Any) -> dict[str, float]:
    from sklearn.metrics import f1_score  # what their library `evaluate` calls

    return {"f1": f1_score(answers["references"], answers["predictions"], pos_label=0, average="weighted")}


def _their_report(key: str) -> Callable[[Path], Score]:
    def authors(clone: Path) -> Score:
        import pandas as pd

        f1 = SimpleNamespace(compute=_f1 if key.endswith("f1") else lambda **_: {"f1": 0.0})
        given = {"pd": pd, "evaluate": SimpleNamespace(load=lambda _: f1)}
        names = ("score_and_analyze", "map_binary_answer_to_int", "yesno_to_int")
        code, read = authors_names(clone / "eval_fantom.py", names, given), _their_reading(clone)
        args = SimpleNamespace(model="", conversation_input_type="short", aggregation_target="set")
        this = SimpleNamespace(args=args, yesno_to_int=lambda text: code["yesno_to_int"](None, text))
        unused = {"tom_type": "-", "word_overlap": 0.0, "excluded_aware_character": 0, "included_unaware_character": 0}
        shared = {"missed_info_accessibility": "inaccessible", "question": "does - know", **unused}

        def row(number: int, case: tuple[dict[str, Any], str]) -> dict[str, Any]:
            polarity = code["map_binary_answer_to_int"](None, case[1])
            read_so = {"prediction": case[1], "result": bool(read(case)), "binarized_model_answer": polarity}
            return {**shared, **case[0], "set_id": f"{number}-0-0", **read_so}

        def score(sets: Sequence[Any]) -> float:
            rows = [row(number, case) for number, questions in enumerate(sets) for case in questions]
            return float(code["score_and_analyze"](this, pd.DataFrame(rows))[f"inaccessible:{key}"]) / 100

        return score

    return authors


_REPOSITORY = "fantom"
_LIMITS = "lists whose answer is nobody and beliefs in free words (and so ALL*) are no rows of ours"
COMPARISONS: list[Comparison] = [
    Comparison(
        "fantom",
        "accuracy (headline)",
        "original",
        "whole words and single letters count, beginnings and parts of words do not; facts by SQuAD's F1",
        _REPOSITORY,
        READINGS,
        lambda case: _verdict(case).verdict.reward,
        _their_reading,
    ),
    Comparison(
        "fantom",
        "accuracy_official",
        "authors",
        "",
        _REPOSITORY,
        READINGS,
        lambda case: _verdict(case).verdict.metrics["accuracy_official"],
        _their_reading,
    ),
    Comparison(
        "fantom",
        "all_correct",
        "authors",
        _LIMITS,
        _REPOSITORY,
        SETS,
        _of_the_set("all_correct"),
        _their_report("set:ALL"),
    ),
    Comparison(
        "fantom",
        "f1_answerability",
        "authors",
        "",
        _REPOSITORY,
        SETS,
        _of_the_set("f1_answerability"),
        _their_report("answerability:binary-f1"),
    ),
]
