"""Rows as the original's parquet files hold them: each is a row of ours, also in a file with other tasks."""

import json

import pytest

from soul.rows.task_files import parse_row
from tests.soul.samples import HITOM
from tests.soul.tasks.coser_scenes import CIRCUMSTANCE
from tests.soul.tasks.mirrorbench_talks import RECORD as HAMMOCK
from tests.soul.tasks.one_turn_samples import BEHAVIOR_CHAIN, HUMANLLM, LIFECHOICES, SOCSCI
from tests.soul.tasks.sim_arena_cases import MATH as MATH_TALK
from tests.soul.tasks.sotopia_encounters import RECORD as ENCOUNTER
from tests.soul.tasks.userllm_rows import CSQA

STYLE = {"Feature Name": "Case", "Feature Question (Answer)": "Lower."}
MATH = {"problem": "2+2", "user_profile_text": "A pupil.", "human_user_queries": ["Why?"]}
MATH |= {"human_public_conversation": "User: Why?", "target_interaction_style_features": [STYLE]}
OPTIONS = dict(zip("ABCD", "wxyz", strict=True))
# Task -> its record and the right answer, if a single one is right.
RECORDS = {
    "sotopia": ({**ENCOUNTER, "relationship": "friends", "eval_position": "agent2"}, None),
    "coser": ({"circumstance": json.dumps(CIRCUMSTANCE)}, None),
    "lifechoices": (LIFECHOICES, "B. She sends him away."),
    "userllm": (
        {"id": "csqa-1", "source": "commonsense_qa", "intent": "Find out.", "conversation_history": "<user>: Where?"}
        | {"choices": {"label": ["A", "B"], "text": ["cave", "barn"]}},
        None,
    ),
    "mirrorbench": (HAMMOCK, None),
    "fantom": (
        {"context": "Ann: hi", "complete_question": "Who?", "question_type": "tom:answerability:binary"}
        | {"correct_answer": "no", "set_id": "1", "part_id": "2"},
        "no",
    ),
    "hitom": (HITOM, "B. red_crate"),
    "paratomi": ({"story": "['a came']", "question": "?", "cands": "['x', 'y']", "correct_answer": "x"}, "x"),
    "mistakes": (
        {f"Answer{letter}Text": text for letter, text in OPTIONS.items()}
        | {
            "QuestionText": "q",
            "MisconceptionName": "m",
            "TargetOption": "B",
            "TargetAnswer": "x",
            "MisconceptionId": 3,
        },
        "B. x",
    ),
    "twinvoice": (
        {"conversation_history": ["h"], "anchor_post": "p", "answer_choices": list("wxyz"), "answer_idx": 2},
        "C. y",
    ),
    "social_r1": (
        {"conversations": [{"messages": [{"role": "user", "content": "A. x\nB. y"}]}], "answer_letter": "B"},
        "B. y",
    ),
    "behavior_chain": (BEHAVIOR_CHAIN, "C. She refuses."),
    "sim_arena_math": ({"raw": json.dumps(MATH)}, None),
    "sim_arena_doc": ({"raw": json.dumps({**MATH, "document_type": "email", "intent": "i"})}, None),
    "humanual-book": (
        {"prompt": json.dumps([{"role": "user", "content": "post"}]), "persona": "p", "completion": "c"},
        None,
    ),
    "alignx_ugc": (
        {"raw_prompt": "p", "chosen": "yes", "rejected": "no", "demographic": "", "profile": "x", "n_icl": 2}
        | {"icl_pairs": [{"prompt": "p", "chosen": "c", "rejected": "r"}], "ugc": [{"prompt": "p", "comment": "c"}]},
        "yes",
    ),
    "socsci210": (SOCSCI, "5"),
    "humanllm": (HUMANLLM, "D. Thing 3"),
}
ABSENT = dict.fromkeys(key for record, _ in RECORDS.values() for key in record)  # one struct holds the keys of all


@pytest.mark.parametrize("task", RECORDS)
def test_a_row_of_the_original_is_a_row_of_ours_alone_and_among_others(task):
    record, right = RECORDS[task]
    alone, among = (parse_row(task, {"index": 0, **keys, **record}) for keys in ({}, ABSENT))
    assert alone.row == among.row and alone.task.prompt(alone.row)
    target = alone.task.target(alone.row)
    assert target is None if right is None else right in (target or "")


QUESTION = LIFECHOICES["Multiple Choice Question"]
FLAT = {name.lower().replace(" ", "_"): value for name, value in QUESTION.items()}
CHAIN = json.loads(BEHAVIOR_CHAIN["raw"])
SPOKEN = [{"role": "user", "content": "who built it"}, {"role": "assistant", "content": "No idea."}]
# Task -> one record in the forms of public files: nested, as JSON, flat, under other names.
FORMS = {
    "lifechoices": [
        LIFECHOICES,
        {**LIFECHOICES, "Multiple Choice Question": json.dumps(QUESTION)},
        {**LIFECHOICES, "Multiple Choice Question": None, **FLAT},
        {**LIFECHOICES, "Multiple Choice Question": None, **FLAT, "options": str(FLAT["options"])},
    ],
    "behavior_chain": [BEHAVIOR_CHAIN, {"index": 0, "raw": CHAIN}, {"index": 0, **CHAIN}],
    "sim_arena_math": [MATH_TALK, {"index": 3, "raw": MATH_TALK}, {"index": 3, "raw": json.dumps(MATH_TALK)}],
    "mirrorbench": [
        {"index": 1, **HAMMOCK},
        {"index": 1, **HAMMOCK, "turns": json.dumps(HAMMOCK["turns"])},
        {"index": 1, **HAMMOCK, "turns": None, "conversation": tuple(HAMMOCK["turns"])},
    ],
    "userllm": [
        {"index": 1, **CSQA, "conversation_history": "User: who built it\nAssistant: No idea."},
        {"index": 1, **CSQA, "choices": json.dumps(CSQA["choices"]), "conversation_history": SPOKEN},
        {"index": 1, **CSQA, "opening_prompt": "", "conversation_history": json.dumps(SPOKEN)},
    ],
}


@pytest.mark.parametrize("task", FORMS)
def test_every_form_of_a_record_is_one_row(task):
    first, *others = (parse_row(task, record).row for record in FORMS[task])
    assert all(row == first for row in others)
