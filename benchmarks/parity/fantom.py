"""FANToM: eval_fantom.py of github.com/skywalker023/fantom beside `soul.tasks.fantom`."""

from collections import Counter
from pathlib import Path
from typing import Any

from benchmarks.parity.comparison import Comparison, Score, authors_names, judged_by_rule, tagged

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


_METHODS = "evaluate_mc_belief_q evaluate_list_q map_binary_answer_to_int compute_f1 evaluate_fact_q yesno_to_int"


def _their_reading(clone: Path) -> Score:
    # Their agent, without model and data.
    agent: Any = type("Agent", (), authors_names(clone / "eval_fantom.py", _METHODS.split(), {"Counter": Counter}))()

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


def _reward(case: tuple[dict[str, Any], str]) -> float:
    row = {"context": "-", "question": "-", **case[0]}
    return judged_by_rule("fantom", row, tagged(case[1])).verdict.reward


COMPARISONS = [Comparison("fantom", "accuracy (headline)", "fantom", READINGS, _reward, _their_reading)]
