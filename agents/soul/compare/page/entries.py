"""The paired rows as stored in the page: an index for the list, and both texts of each row, unpacked when opened."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from soul.compare.comparison import Comparison
from soul.compare.pairs import Pair
from soul.evaluate.report.packing import SHOWN_CHARACTERS, SHOWN_OF_ANSWERS, plain, start_of
from soul.evaluate.tables.answers import Answers, answers_of
from soul.message import Message
from soul.record import AttemptRecord, Conversations, SessionRecord


class PairedRow(NamedTuple):
    """A row that has a score in both runs.

    Attributes:
        shown: the sample of each run that explains most of the difference.
        answers: question and answers of these two samples.
        gain: how much better the other run is; negative if it is worse.
    """

    set: str
    pair: Pair
    shown: tuple[SessionRecord, SessionRecord]
    answers: tuple[Answers, Answers]
    gain: float


def paired_rows(comparison: Comparison) -> list[PairedRow]:
    """All paired rows of a comparison, in the order of the sets and of their files."""
    rows = []
    for name, one in comparison.sets.items():
        for pair in one.paired.pairs:
            shown = pair.shown()
            base, other = answers_of(shown)
            rows.append(PairedRow(name, pair, shown, (base, other), one.gain(pair)))
    return rows


def index(rows: Sequence[PairedRow], sets: Sequence[str], starts: Sequence[int]) -> dict[str, Any]:
    """The columns that the list shows, sorts by and filters by.

    Args:
        sets: all names of sets; a row stores its set's place in them.
        starts: the row with which each part begins.
    """
    places = {name: place for place, name in enumerate(sets)}
    columns: dict[str, Any] = plain(
        {
            "starts": list(starts),
            "set": [places[row.set] for row in rows],
            "number": [row.pair.number for row in rows],
            "question": [start_of(row.answers[0].question, SHOWN_CHARACTERS) for row in rows],
            "target": [start_of(row.answers[0].target, SHOWN_OF_ANSWERS) for row in rows],
            "base": [row.pair.scores[0] for row in rows],
            "other": [row.pair.scores[1] for row in rows],
            "difference": [row.pair.difference for row in rows],
            "gain": [(row.gain > 0) - (row.gain < 0) for row in rows],
            "groups": [row.pair.base[0].groups for row in rows],
        }
    )
    return columns


def row_line(row: PairedRow) -> dict[str, Any]:
    """A row with both texts. Messages that both models saw are stored once."""
    common = _common([sample.draft.seats or {} for sample in row.shown])
    return {
        "set": row.set,
        "number": row.pair.number,
        "row": row.pair.row,
        "record": row.shown[0].record,
        "question": row.answers[0].question,
        "target": row.answers[0].target,
        "prompt": common,
        "sides": [
            {
                "sample": sample.sample,
                "of": len(samples),
                "score": score,
                "given": answers.given,
                "draft": _draft(sample.draft, len(common)),
            }
            for sample, samples, score, answers in zip(
                row.shown, (row.pair.base, row.pair.other), row.pair.scores, row.answers, strict=True
            )
        ],
    }


def _common(seats: Sequence[Conversations]) -> list[Message]:
    """The messages that both conversations begin with, if each has a single seat."""
    if any(len(side) != 1 for side in seats):
        return []
    base, other = (next(iter(side.values())) for side in seats)
    messages = []
    for one, two in zip(base, other, strict=False):
        if one != two or one["role"] == "assistant":
            break
        messages.append(one)
    return messages


def _draft(draft: AttemptRecord, common: int) -> dict[str, Any]:
    """The part of a draft that the page shows.

    In a scene (`lines`, `acts`), every seat's messages repeat the turns of all others, so the page keeps only each
    seat's own turns. The reports have the rest.
    """
    scene: dict[str, Any] = {key: draft.episode[key] for key in ("lines", "acts") if key in draft.episode}
    kept = {
        seat: [m for m in messages if m["role"] == "assistant"] if scene else messages[common:]
        for seat, messages in (draft.seats or {}).items()
    }
    shown = {"reward", "metrics", "critique", "ended", "contentless"}
    return {"seats": kept, **scene, **draft.model_dump(include=shown)}
