"""Mistakes: calculations that a misconception makes wrong in a predictable way."""

from __future__ import annotations

from typing import Any, NamedTuple

from soul.examples.example import LetterExample, shuffled
from soul.tasks.mistakes import MistakesRow


class _Sum(NamedTuple):
    question: str
    misconception: str
    wrong: str  # what the misconception leads to
    right: str
    others: tuple[str, str]


class MistakesExample(LetterExample[MistakesRow]):
    """A student who is sure of one wrong rule."""

    name = "mistakes"
    hidden = ("target_option", "target_answer", "correct_option")

    def record(self, number: int) -> dict[str, Any]:
        task = (_order_of_operations, _fractions, _decimals)[number % 3](number // 3)
        texts = shuffled([task.wrong, task.right, *task.others], number, self.name)
        letters = dict(zip(texts, "ABCD", strict=True))
        return {
            "QuestionText": task.question,
            **{f"Answer{letter}Text": text for text, letter in letters.items()},
            "MisconceptionName": task.misconception,
            "TargetOption": letters[task.wrong],
            "TargetAnswer": task.wrong,
            "CorrectAnswer": letters[task.right],
        }


def _order_of_operations(turn: int) -> _Sum:
    first, second, third = 4 + turn, 3, 5 + turn % 2
    return _Sum(
        rf"Work out \( {first} + {second} \times {third} \)",
        "Works from left to right, whatever the operations",
        rf"\( {(first + second) * third} \)",
        rf"\( {first + second * third} \)",
        (rf"\( {first + second + third} \)", rf"\( {first * second * third} \)"),
    )


def _fractions(turn: int) -> _Sum:
    below = 5 + turn
    return _Sum(
        rf"Work out \( \frac{{1}}{{{below}}} + \frac{{2}}{{{below}}} \)",
        "Adds the tops and the bottoms of two fractions",
        rf"\( \frac{{3}}{{{2 * below}}} \)",
        rf"\( \frac{{3}}{{{below}}} \)",
        (rf"\( \frac{{2}}{{{below * below}}} \)", rf"\( \frac{{1}}{{{below}}} \)"),
    )


def _decimals(turn: int) -> _Sum:
    whole = 1 + turn
    return _Sum(
        f"Which of these numbers lies nearest to {whole + 1}?",
        "Takes the number with the most digits behind the point for the largest",
        f"{whole}.1234",
        f"{whole}.9",
        (f"{whole}.25", f"{whole}.345"),
    )
