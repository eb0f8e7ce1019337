"""One small record of each one-turn task of this folder, with answers that score in full and answers that do not."""

import json
from typing import Any

from soul import examples
from soul.rows.task_files import TaskRow
from soul.task import Task
from soul.task_types import Row, Verdict
from soul.tasks.alignx import AlignX, AlignXRow
from tests.soul import samples
from tests.soul.samples import Sample, tagged

__all__ = ["tagged"]

LIFECHOICES: dict[str, Any] = {
    "index": 0,
    "character_name": "Ada Brook",
    "book": "The Weir",
    "input_text": "Ada grew up by the weir. She never forgave her brother for selling the mill.",
    "Multiple Choice Question": {
        "Scenario": "Her brother stands at the door and asks for shelter.",
        "Question": "What does Ada do?",
        "Options": [
            "A.She lets him in.",
            "B. She sends him away.",
            "C.She calls the bailiff.",
            "D.She leaves by night.",
        ],
        "Correct Answer": "B",
    },
}
# Rows of the examples whose right answer is B.
TWINVOICE, MISTAKES, SOCIAL_R1 = (
    {"index": 0, **examples.load(name).record(number)}
    for name, number in (("twinvoice", 0), ("mistakes", 3), ("social_r1", 13))
)
BEHAVIOR_CHAIN: dict[str, Any] = {
    "index": 0,
    "raw": json.dumps(
        {
            "persona_name": "Tess Arden",
            "profile_text": "A fisher's daughter, stubborn and proud.",
            "history_truncated": [{"chapter_num": 1, "chapter_content": "Tess loses the boat."}],
            "prior_chain": [{"context": "The neighbours offer bread.", "behavior": "Tess turns them down."}],
            "current_context": "The harbour master offers her a loan.",
            "options_dict": {"A": "She signs.", "B": "She weeps.", "C": "She refuses.", "D": "She bargains."},
            "right_option_letter": "C",
        }
    ),
}
_POST = {
    "raw_prompt": "How do I tell my boss?",
    "chosen": "Just say it. Done.",
    "rejected": "Perhaps, if I may, consider",
}
ALIGNX = {
    "index": 0,
    **_POST,
    "demographic": "Young, lives alone.",
    "profile": "Likes blunt words",
    "icl_pairs": [
        {"prompt": "Tea?", "chosen": "No.", "rejected": "That is so kind."},
        {"prompt": "Rain?", "chosen": "Yes.", "rejected": "The weather may well turn."},
        {"prompt": "Third?", "chosen": "Unseen third.", "rejected": "Never shown."},
    ],
    "ugc": [{"prompt": "On queues", "comment": "Hate them."}],
}
SOCSCI = {
    "index": 0,
    "prompt_text": "You are a farmer. How likely will you vote? Only return a number, 1 = not at all to 7 = surely.",
    "response": 5,
    "response_type": "ordinal",
    "r_min": 1,
    "r_max": 7,
}
HUMANLLM = {
    "index": 0,
    "prompt_text": "The user bought a tent, a stove and boots.",
    "candidates": [f"Thing {number}" for number in range(20)],
    "answer_index": 3,
    "answer_letter": "D",
    "answer_text": "Thing 3",
}


_LETTER_B = (("B", "b", "(b)", "B."), ("A", "C", "E", "B because", "1", "A, B"))
_GOLD = AlignX().gold(AlignXRow.model_validate(ALIGNX))
_ALIGNX = ALIGNX, (_GOLD, _GOLD.lower(), f"({_GOLD})"), ("B" if _GOLD == "A" else "A", "C", "both")
SAMPLES: dict[str, Sample] = {
    "lifechoices": Sample("lifechoices", LIFECHOICES, *_LETTER_B),
    "twinvoice": Sample("twinvoice", TWINVOICE, *_LETTER_B),
    "mistakes": Sample("mistakes", MISTAKES, *_LETTER_B),
    "social_r1": Sample("social_r1", SOCIAL_R1, *_LETTER_B),
    "behavior_chain": Sample("behavior_chain", BEHAVIOR_CHAIN, ("C", "c", "(C)."), ("A", "D", "Z", "She signs.")),
    "alignx": Sample("alignx", *_ALIGNX),
    "alignx_history16": Sample("alignx_history16", *_ALIGNX),
    "socsci210": Sample("socsci210", SOCSCI, ("5", "5.", " 5.0 ", "+5"), ("five", "5 or 6", "yes", "5/7", "1e1")),
    "humanllm": Sample(
        "humanllm",
        HUMANLLM,
        ("D,A,B,C,E", "d, t, c, b, a", "D,A,B,C,E."),
        ("D", "D,A,B,C", "D,A,B,C,D", "D,A,B,C,E,F", "DABCE", "A,B,C,E,F", "D,A,B,C,U", "1,2,3,4,5"),
    ),
}


def verdict_of(task: Task[Any], row: Row, text: str) -> Verdict:
    """The verdict of a rule-scored task on an answer to the row's prompt; its judge must not be asked."""
    return samples.verdict_of(TaskRow(task, row, "", 0), text)
