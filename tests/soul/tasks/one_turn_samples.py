"""One small record of each one-turn task of this folder, with answers that score in full and answers that do not."""

import asyncio
import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from soul.task import Task
from soul.task_types import Episode, Row, Verdict
from soul.tasks.alignx import AlignX, AlignXArbitrary, AlignXDemo, AlignXHistory16, AlignXPair, AlignXUGC
from soul.tasks.behavior_chain import BehaviorChain
from soul.tasks.humanllm import HumanLLM
from soul.tasks.lifechoices import LifeChoices
from soul.tasks.mistakes import Mistakes
from soul.tasks.social_r1 import SocialR1
from soul.tasks.socsci210 import SocSci210
from soul.tasks.twinvoice import TwinVoice


class Sample(NamedTuple):
    """A task with a record of it."""

    task: Task[Any]
    record: Mapping[str, Any]
    right: tuple[str, ...]
    wrong: tuple[str, ...]
    other_gold: Mapping[str, Any] = {}  # fields that make another answer the right one

    @property
    def row(self) -> Row:
        row = self.task.row_type.model_validate(self.record)
        self.task.check(row)
        return row


LIFECHOICES = {
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
TWINVOICE = {
    "index": 0,
    "conversation_history": ["ugh, mondays", "coffee first. then words.", "nope nope nope"],
    "anchor_post": "The office moves to the fifth floor.",
    "answer_choices": ["How very exciting!", "stairs? nope.", "I shall miss our windows.", "When is that, please?"],
    "answer_idx": 1,
    "dimension": "1",
}
MISTAKES = {
    "index": 0,
    "QuestionText": r"Work out \( 2+3 \times 4 \)",
    "AnswerAText": r"\( 14 \)",
    "AnswerBText": r"\( 20 \)",
    "AnswerCText": r"\( 24 \)",
    "AnswerDText": r"\( \frac{9}{1} \)",
    "MisconceptionName": "Works from left to right whatever the operations",
    "TargetOption": "B",
    "CorrectAnswer": "A",
}
SOCIAL_R1 = {
    "index": 0,
    "prompt_text": "Bo gets an ugly scarf.\n\nQuestion: What does he feel?\nA. Joy\nB. Disappointment\nC. Fear",
    "answer_letter": "B",
    "answer_text": "Disappointment",
}
BEHAVIOR_CHAIN = {
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


def _alignx(task: AlignX) -> Sample:
    row = task.row_type.model_validate(ALIGNX)
    gold = task.gold(row)
    return Sample(task, ALIGNX, (gold, gold.lower(), f"({gold})"), ("B" if gold == "A" else "A", "C", "both"))


_LETTER_B = (("B", "b", "(b)", "B."), ("A", "C", "E", "B because", "1", "A, B"))
SAMPLES: dict[str, Sample] = {
    "lifechoices": Sample(
        LifeChoices(),
        LIFECHOICES,
        *_LETTER_B,
        {"Multiple Choice Question": {**LIFECHOICES["Multiple Choice Question"], "Correct Answer": "C"}},  # type: ignore[dict-item]
    ),
    "twinvoice": Sample(TwinVoice(), TWINVOICE, *_LETTER_B, {"answer_idx": 3}),
    "mistakes": Sample(Mistakes(), MISTAKES, *_LETTER_B, {"TargetOption": "C"}),
    "social_r1": Sample(SocialR1(), SOCIAL_R1, *_LETTER_B, {"answer_letter": "C", "answer_text": "Fear"}),
    "behavior_chain": Sample(
        BehaviorChain(),
        BEHAVIOR_CHAIN,
        ("C", "c", "(C)."),
        ("A", "D", "Z", "She signs."),
        {"raw": BEHAVIOR_CHAIN["raw"].replace('letter": "C"', 'letter": "A"')},  # type: ignore[attr-defined]
    ),
    "alignx": _alignx(AlignX()),
    "alignx_demo": _alignx(AlignXDemo()),
    "alignx_pair": _alignx(AlignXPair()),
    "alignx_ugc": _alignx(AlignXUGC()),
    "alignx_arbitrary": _alignx(AlignXArbitrary()),
    "alignx_history16": _alignx(AlignXHistory16()),
    "socsci210": Sample(
        SocSci210(), SOCSCI, ("5", "5.", " 5.0 ", "+5"), ("five", "5 or 6", "yes", "5/7", "1e1"), {"response": 2}
    ),
    "humanllm": Sample(
        HumanLLM(),
        HUMANLLM,
        ("D,A,B,C,E", "d, t, c, b, a", "D,A,B,C,E."),
        ("D", "D,A,B,C", "D,A,B,C,D", "D,A,B,C,E,F", "DABCE", "A,B,C,E,F", "D,A,B,C,U", "1,2,3,4,5"),
        {"answer_index": 4, "answer_letter": "E", "answer_text": "Thing 4"},
    ),
}


def tagged(answer: str) -> str:
    return f"Let me think about this person.\n<answer>{answer}</answer>"


def episode_of(task: Task[Any], row: Row, text: str, feedback: str | None = None) -> Episode:
    """The episode in which the policy answered the row's prompt with this text."""
    return Episode({"policy": [*task.prompt(row, feedback), {"role": "assistant", "content": text}]})


def verdict_of(task: Task[Any], row: Row, text: str, feedback: str | None = None) -> Verdict:
    """The verdict of a rule-scored task. There is no judge, so to ask for a score would fail."""
    return asyncio.run(task.judge(row, episode_of(task, row, text, feedback), None))  # type: ignore[arg-type]
