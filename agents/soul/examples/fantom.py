"""FanToM: conversations that one person leaves for a while, with questions of all four kinds."""

from __future__ import annotations

import random
from typing import Any

from soul.examples.example import WORDS, Example, Player, always, babble, pick, shuffled
from soul.metrics.overlap import token_f1
from soul.tasks.fantom_row import FanToMRow

_CASTS = (("Ann", "Bob", "Carl"), ("Dora", "Emil", "Fay"), ("Gus", "Hana", "Ivo"), ("Kim", "Leo", "Mona"))
# The subject, a question about it, the answer, and a wrong answer that nobody gave.
_TALKS = (
    ("my bees", "How many hives has {one}?", "seventeen hives behind the barn", "two hives on the roof"),
    ("my new job", "Where does {one} work now?", "at the ferry office downtown", "at a bank abroad"),
    ("our wedding", "When did {one} get married?", "on a rainy Friday last March", "in the summer of 1999"),
    ("the burglary", "What was stolen from {one}?", "an accordion and both clocks", "only some spoons"),
)
_KINDS = ("choice", "list", "binary", "fact")
NOBODY = "nobody at all"


class FanToMExample(Example[FanToMRow]):
    """Two people hear the news while the third gets a coffee."""

    name = "fantom"
    hidden = ("correct_answer", "wrong_answer")

    def record(self, number: int) -> dict[str, Any]:
        one, two, away = pick(_CASTS, number, len(_KINDS))
        subject, asked, fact, other = pick(_TALKS, number, len(_KINDS) * len(_CASTS))
        asked = asked.format(one=one)
        talk = [
            f"{away}: I need a coffee. Back soon!",
            f"{one}: Did I tell you about {subject}?",
            f"{two}: No! Tell me.",
            f"{one}: Well, here it is: {fact}.",
            f"{away}: Here I am again. What did I miss?",
            f"{two}: Nothing much.",
        ]
        shared = {"context": "\n".join(talk), "set_id": f"talk-{number // len(_KINDS)}"}
        who = pick((away, two), number, 2 * len(_KINDS))
        kind = pick(_KINDS, number)
        if kind == "choice":
            beliefs = [f"{who} believes the answer is: {text}." for text in (fact, other)]
            beliefs.append(f"{who} does not know, having heard nothing of it.")
            shown = shuffled(beliefs, number, self.name)
            return {
                **shared,
                "question": f"What does {who} believe about this: {asked}",
                "question_type": f"tom:belief:{'in' if who == away else ''}accessible:multiple-choice",
                "tom_type": "first-order",
                "answer_choices": shown,
                "correct_answer": shown.index(beliefs[2 if who == away else 0]),
            }
        if kind == "list":
            return {
                **shared,
                "question": f"List all who know the answer to this: {asked}",
                "question_type": "tom:answerability:list",
                "correct_answer": [one, two],
                "wrong_answer": [away],
            }
        if kind == "binary":
            return {
                **shared,
                "question": f"Does {who} know the answer to this? {asked} Answer yes or no.",
                "question_type": "tom:answerability:binary",
                "correct_answer": "no" if who == away else "yes",
            }
        return {**shared, "question": asked, "question_type": "fact", "correct_answer": fact}

    def oracle(self, row: FanToMRow) -> Player:
        return always(f"I followed who was there. <answer>{_right(row)}</answer>")

    def contrarian(self, row: FanToMRow) -> Player:
        right = _right(row)
        if row.kind == "choice":
            wrong = "B" if right == "A" else "A"
        elif row.kind == "binary":
            wrong = "no" if right.lower().startswith("yes") else "yes"
        elif row.kind == "list":
            wrong = ", ".join(row.wrong_answer) if isinstance(row.wrong_answer, list) and row.wrong_answer else NOBODY
        else:
            wrong = min(WORDS, key=lambda word: token_f1(word, right))
        return always(f"Anything but the obvious. <answer>{wrong}</answer>")

    def random(self, row: FanToMRow, rng: random.Random) -> Player:
        if row.kind == "choice":
            answer = rng.choice("ABCDEFGH"[: len(row.answer_choices) or 4])
        elif row.kind == "binary":
            answer = rng.choice(("yes", "no"))
        elif row.kind == "list":
            names = sorted({*row.correct_answer, *row.wrong_answer})  # type: ignore[misc]
            answer = ", ".join(name for name in names if rng.random() < 0.5) or NOBODY
        else:
            answer = f"{rng.choice(row.context.split())} {babble(rng, 2)}"
        return always(f"<answer>{answer}</answer>")


def _right(row: FanToMRow) -> str:
    gold = row.correct_answer
    if row.kind == "choice":
        return chr(ord("A") + int(gold))  # type: ignore[arg-type]
    return ", ".join(gold) if isinstance(gold, list) else str(gold)
