"""FANToM: eval_fantom.py of github.com/skywalker023/fantom beside `soul.tasks.fantom`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from benchmarks.parity.comparison import Comparison, Score, authors_names, judged_by_rule, tagged
from soul import tasks
from soul.metrics.set_metrics import Outcome, SetScore
from soul.task_types import Scored

_WHO = {"correct_answer": ["Ann", "Bob"], "wrong_answer": ["Carl"], "question_type": "tom:answerability:list"}
_NO = {"correct_answer": "no", "question_type": "tom:answerability:binary"}
_YES = {**_NO, "correct_answer": "yes"}
_CHOICES = {"answer_choices": ["x", "y"], "correct_answer": 1}
_BELIEF = {**_CHOICES, "question_type": "tom:belief:inaccessible:multiple-choice"}
_FACT = {"correct_answer": "three hives", "question_type": "fact"}
READINGS = [
    *((_NO, said) for said in ("no", "False", "She doesn't know it.", "Nobody told her", "unknown", "yes and no")),
    *((_YES, said) for said in ("Yes.", "Eve knows this", "No, she knows it", "she does")),
    *((_WHO, said) for said in ("Ann, Bob", "Anna and Bobby", "Ann", "Ann, Bob, not Carl")),
    *((_BELIEF, said) for said in ("B", "(b)", "b) y", "Option B", "I choose (b)", "A")),
    *((_FACT, said) for said in ("three hives", "Three hives.", "the three hives")),
]
# Sets of questions, each with its answers: all right, one wrong, one unreadable.
_YES_NO, _LIST = ({"question_type": f"tom:info_accessibility:{kind}"} for kind in ("binary", "list"))
_INFO = (({**_NO, **_YES_NO}, "no"), ({**_WHO, **_LIST}, "Ann, Bob"))
_RIGHT = ((_BELIEF, "B"), (_WHO, "Ann, Bob"), (_NO, "no"), *_INFO)
SETS = [[(*_RIGHT, (_YES, said)) for said in ("yes", *others)] for others in (("yes",), ("no",), ("maybe", "no"))]


def _verdict(case: tuple[dict[str, Any], str]) -> Scored:
    return judged_by_rule("fantom", {"context": "-", "question": "-", **case[0]}, tagged(case[1]))


def _of_the_set(metric: str) -> Score:
    def score(sets: Sequence[Any]) -> float:
        task = tasks.load("fantom")
        shared = {"index": 0, "context": "-", "question": "-", "missed_info_accessibility": "inaccessible"}
        outcomes: list[Outcome] = []
        for number, case in ((number, case) for number, questions in enumerate(sets) for case in questions):
            row = task.row_type.model_validate({**shared, "set_id": f"{number}-0-0", **case[0]})
            outcomes.append(Outcome(len(outcomes), 1.0, row, _verdict(case)))
        return SetScore.from_metrics(len(outcomes), task.set_metrics(len(outcomes), outcomes)).parts[metric]

    return score


_METHODS = (
    "evaluate_mc_belief_q evaluate_list_q map_binary_answer_to_int compute_f1 evaluate_fact_q yesno_to_int "
    "score_and_analyze"
)


def _agent(clone: Path, **given: Any) -> Any:
    """Their agent without model and data."""
    return type("Agent", (), authors_names(clone / "eval_fantom.py", _METHODS.split(), {"Counter": Counter, **given}))()


def _their_reading(clone: Path) -> Score:
    agent = _agent(clone)

    def score(case: tuple[dict[str, Any], str]) -> float:
        row, said = case
        kind = row["question_type"].rpartition(":")[2]
        if kind == "multiple-choice":
            return float(agent.evaluate_mc_belief_q(row, said))
        if kind == "list":
            return float(agent.evaluate_list_q(row, said)[0])
        if kind == "binary":
            return float(agent.map_binary_answer_to_int(said) == agent.yesno_to_int(row["correct_answer"]))
        return float(agent.evaluate_fact_q(row, said))

    return score


def _f1(**answers: Any) -> dict[str, float]:
    from sklearn.metrics import f1_score  # what their library `evaluate` calls

    return {"f1": f1_score(answers["references"], answers["predictions"], pos_label=0, average="weighted")}


def _their_report(key: str) -> Callable[[Path], Score]:
    def authors(clone: Path) -> Score:
        import pandas as pd

        f1 = SimpleNamespace(compute=_f1 if key.endswith("f1") else lambda **_: {"f1": 0.0})
        agent, read = _agent(clone, pd=pd, evaluate=SimpleNamespace(load=lambda _: f1)), _their_reading(clone)
        agent.args = SimpleNamespace(model="", conversation_input_type="short", aggregation_target="set")
        unused = {"tom_type": "-", "word_overlap": 0.0, "excluded_aware_character": 0, "included_unaware_character": 0}
        shared = {"missed_info_accessibility": "inaccessible", "question": "does - know", **unused}

        def row(number: int, case: tuple[dict[str, Any], str]) -> dict[str, Any]:
            polarity = agent.map_binary_answer_to_int(case[1])
            read_so = {"prediction": case[1], "result": bool(read(case)), "binarized_model_answer": polarity}
            return {**shared, **case[0], "set_id": f"{number}-0-0", **read_so}

        def score(sets: Sequence[Any]) -> float:
            rows = [row(number, case) for number, questions in enumerate(sets) for case in questions]
            return float(agent.score_and_analyze(pd.DataFrame(rows))[f"inaccessible:{key}"]) / 100

        return score

    return authors


def _reward(case: tuple[dict[str, Any], str]) -> float:
    return _verdict(case).verdict.reward


def _metric(name: str) -> Score:
    return lambda case: _verdict(case).verdict.metrics[name]


COMPARISONS = [
    Comparison("fantom", "accuracy (headline)", "fantom", READINGS, _reward, _their_reading),
    Comparison("fantom", "accuracy_official", "fantom", READINGS, _metric("accuracy_official"), _their_reading),
    Comparison("fantom", "all_correct", "fantom", SETS, _of_the_set("all_correct"), _their_report("set:ALL")),
    Comparison(
        *("fantom", "f1_answerability", "fantom", SETS, _of_the_set("f1_answerability")),
        _their_report("answerability:binary-f1"),
    ),
]
