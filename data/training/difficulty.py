"""Measure a finished task file without a model: shortcuts through its choices, and the shape of its prompts and turns.

The same numbers are taken of the evaluation set, so that a training file that differs from it in length or in turns is
noticed.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from data.training.choice_baselines import Question, baselines, question_of, warnings
from soul.rows.task_files import TaskRow
from soul.tasks.coser_row import CoSERRow
from soul.tasks.mirrorbench import MirrorBenchRow

FAR = 2.0  # factor between the medians of two files from which the user is told

# The turns of people that a row has, by the type of the row.
_TURNS: Mapping[type, Callable[[Any], Sequence[str]]] = {
    MirrorBenchRow: lambda row: row.user_turns,
    CoSERRow: lambda row: [line.text for line in row.reference],
}


@dataclass
class Measures:
    """Collects the measures of one file, row by row.

    Attributes:
        prompt_words: of each prompt.
        turns: of each conversation of people.
        turn_words: of each turn.
    """

    questions: list[Question] = field(default_factory=list)
    prompt_words: list[int] = field(default_factory=list)
    turns: list[int] = field(default_factory=list)
    turn_words: list[int] = field(default_factory=list)

    @classmethod
    def from_rows(cls, rows: Iterable[TaskRow]) -> Measures:
        measures = cls()
        for row in rows:
            measures.add(row)
        return measures

    def add(self, row: TaskRow) -> None:
        """Measure one row."""
        self.prompt_words.append(sum(len(message["content"].split()) for message in row.task.prompt(row.row)))
        if (question := question_of(row)) is not None:
            self.questions.append(question)
        if (turns_of := _TURNS.get(type(row.row))) is not None:
            turns = turns_of(row.row)
            self.turns.append(len(turns))
            self.turn_words += [len(turn.split()) for turn in turns]

    def to_json(self) -> dict[str, dict[str, float]]:
        """The measures by name; distributions as 10th percentile, median and 90th percentile."""
        spans = {"prompt_words": self.prompt_words, "turns": self.turns, "turn_words": self.turn_words}
        found = {name: _spread(values) for name, values in spans.items() if values}
        if self.questions:
            shares = {name: round(share, 4) for name, share in baselines(self.questions).items()}
            found["choices"] = {"questions": len(self.questions), **shares}
        return found


def _spread(values: Sequence[int]) -> dict[str, float]:
    if len(values) == 1:
        return dict.fromkeys(("p10", "median", "p90"), float(values[0]))
    tenths = statistics.quantiles(values, n=10, method="inclusive")
    return {"p10": tenths[0], "median": float(statistics.median(values)), "p90": tenths[8]}


def remarks(measured: Mapping[str, Mapping[str, float]], evaluated: Mapping[str, Mapping[str, float]]) -> list[str]:
    """What the user should look at: baselines that do too well, and medians far from those of the evaluation set."""
    choices = dict(measured.get("choices", {}))
    lines = warnings(choices, int(choices.pop("questions"))) if choices else []
    for name in ("prompt_words", "turns", "turn_words"):
        if name in measured and name in evaluated:
            ours, theirs = measured[name]["median"], evaluated[name]["median"]
            if max(ours, theirs) > FAR * max(min(ours, theirs), 1):
                what = name.replace("_", " ")
                lines.append(f"median {what}: {ours:,.0f}, in the evaluation set {theirs:,.0f}")
    return lines
