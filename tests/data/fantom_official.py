"""Entries in the form of FANToM's official file, `fantom_v1.json`, which is not among the records at hand.

Keys, question types, answers and the wording of the questions follow the official code (github.com/skywalker023/fantom,
eval_fantom.py and task/dataset_loader.py) and public readers of the file. People and talk are invented.
"""

from typing import Any

PEOPLE = ("Ann", "Bob", "Carl", "Dora")


def entry(conversation: int, part: int = 0, number: int = 0) -> dict[str, Any]:
    """One set of questions: Carl comes late, Dora was there only in another part of the conversation."""
    subject = f"the boat that Ann has painted in year {conversation}, {part} and {number}"
    short = "\n".join(
        (
            f"Ann: You should have seen {subject}, it took me all summer.",
            f"Bob: I remember it well, and the colour of {subject} was a deep green.",
            "Carl: Hello! Sorry for being late.",
            f"Ann: No harm done, Carl, we were just talking, number {conversation}-{part}-{number} of many talks.",
        )
    )
    fact = {
        "question": f"What is the colour of {subject}?",
        "correct_answer": f"{subject} is deep green.",
        "wrong_answer": "The colour is not known.",
        "question_type": "fact",
    }
    knows, missed = f"Carl believes that {subject} is deep green.", f"Carl does not know the colour of {subject}."
    common = {"missed_info_accessibility": "inaccessible"}
    who = {"correct_answer": ["Ann", "Bob"], "wrong_answer": ["Carl"], **common}

    def each(question: str, kind: str) -> list[dict[str, Any]]:
        answers = zip(PEOPLE, ("yes", "yes", "no", "no:long"), strict=True)
        return [
            {
                "question": question.format(name),
                "correct_answer": answer,
                "question_type": f"tom:{kind}:binary",
                **common,
            }
            for name, answer in answers
        ]

    return {
        "set_id": f"{conversation}-{part}-{number}",
        "part_id": f"{conversation}-{part}",
        "conv_id": conversation,
        "short_context": short,
        "missed_info": subject,
        "joining_speaker": "Carl",
        "factQA": fact,
        "beliefQAs": [
            {
                "question": f"What does Carl believe about the colour of {subject}?",
                "question_type": "tom:belief:inaccessible",
                "tom_type": "first-order",
                "correct_answer": missed,
                "wrong_answer": knows,
                **common,
            },
            {
                "question": f"What does Bob believe about Carl's belief on the colour of {subject}?",
                "question_type": "tom:belief:inaccessible",
                "tom_type": "second-order:acyclic",
                "correct_answer": f"Bob believes that {missed}",
                "wrong_answer": f"Bob believes that {knows}",
                **common,
            },
        ],
        "answerabilityQA_list": {
            "question": "List all the characters who know the precise correct answer to this question.",
            "question_type": "tom:answerability:list",
            **who,
        },
        "answerabilityQAs_binary": each("Does {} know the precise correct answer to this question?", "answerability"),
        "infoAccessibilityQA_list": {
            "question": "List all the characters who know this information.",
            "question_type": "tom:info_accessibility:list",
            **who,
        },
        "infoAccessibilityQAs_binary": each("Does {} know this information?", "info_accessibility"),
    }


def entries(conversations: int) -> list[dict[str, Any]]:
    """So many conversations, of two parts with a set each."""
    return [entry(conversation, part) for conversation in range(conversations) for part in range(2)]
