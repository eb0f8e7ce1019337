"""Forward distillation: the refined answers of DITTO runs that are better than their drafts, as SFT rows.

A refined answer was sampled with feedback in its prompt. It is trained in the base context, which is the same without
the feedback; the trace holds it only in parts. The prompt without feedback is the draft's, and what was said after the
instructions is the refined episode's own. So a message that holds the feedback is exchanged for the draft's, if the
draft's is just that message without one block; all others stay. Where that does not work out exactly, there is no base
context, and the conversation is not used.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import blake2b
from itertools import takewhile
from os.path import commonprefix
from pathlib import Path
from typing import Any

from sft.distill.conversation import TRAINED
from sft.distill.heldout import Unseen, fingerprints
from sft.distill.journals import lines, usable
from sft.distill.sample import ExpertSample, Origin, Place, Provenance, never_kept
from soul.errors import SoulError
from soul.message import Message
from soul.rows.task_files import read_rows

NO_BASE = "no base context"


class BadTraces(SoulError):
    """A folder has no traces, or they cannot be used as asked."""


@dataclass(frozen=True, eq=False)
class RunTraces:
    """The traces of a run.

    Attributes:
        with_feedback: the messages are those of the refined episode as they are, feedback included.
    """

    run: Path
    with_feedback: bool = False
    origin: Origin = field(default="trace", init=False)

    @property
    def name(self) -> str:
        return str(self.run)

    @cached_property
    def files(self) -> list[Path]:
        """The traces of its training steps.

        Raises:
            BadTraces: there are none.
        """
        found = sorted((self.run / "traces").glob("step_*.jsonl"))
        if not found:
            raise BadTraces(
                f"{self.run} has no traces/step_*.jsonl: name the folder of a run (OUTPUT_DIR/EXPERIMENT_NAME)."
            )
        return found

    def samples(self, unseen: Unseen) -> list[ExpertSample]:
        """The sessions with a refined episode, in the order of steps.

        Raises:
            BadTraces: rows are to be held against evaluations, and their file is not there any more.
        """
        known: dict[str, Sequence[tuple[str, ...]]] = {}  # file of rows -> their fingerprints
        counts: Counter[str] = Counter()
        found = []
        for file in self.files:
            for offset, line in lines(file):
                if line["refined"] is None:
                    continue
                row = self._row(line, known, unseen)
                found.append(self._sample(Place(file, offset), line, row, counts[row[0]], unseen))
                counts[row[0]] += 1
        return found

    def _row(
        self, line: Mapping[str, Any], known: dict[str, Sequence[tuple[str, ...]]], unseen: Unseen
    ) -> tuple[str, ...]:
        """The fingerprints of a session's row; of its place alone where its file has gone."""
        file, _, number = line["where"].rpartition(", row ")
        if file not in known:
            known[file] = [fingerprints(row) for row in read_rows([file])] if Path(file).is_file() else ()
        if known[file]:
            return known[file][int(number)]
        if unseen:
            raise BadTraces(
                f"{self.run}: its rows are those of {file}, which is not there, so --not-in cannot be checked. "
                "Bring the file back, or leave --not-in away."
            )
        return (blake2b(f"{line['task']} {line['where']}".encode(), digest_size=16).hexdigest(),)

    def _sample(
        self, place: Place, line: Mapping[str, Any], row: Sequence[str], number: int, unseen: Unseen
    ) -> ExpertSample:
        draft, refined = line["draft"], line["refined"]
        both = draft["valid"] and refined["valid"]
        seats, lost = usable(self.conversations(line)) if both else ((), Counter[str]())
        lost[NO_BASE] += len(refined["seats"]) - len(seats) - lost.total() if both else 0
        problem = never_kept(
            None if both else (refined if draft["valid"] else draft)["failure"] or {},
            seats,
            +lost,
            seen=unseen.holds(row),
            contentless=refined["contentless"],
            cut_off=bool(line.get("out_of_tokens", {}).get("refined")),
        )
        return ExpertSample(
            source=self,
            place=place,
            task=line["task"],
            data_source=line["task"],
            row=row[0],
            number=int(line["where"].rpartition(", row ")[2]),
            sample=number,
            reward=refined["reward"] if both else None,
            problem=problem,
            bar=draft["reward"],
            seats=seats,
            lost=+lost,
        )

    def conversations(self, line: Mapping[str, Any]) -> Mapping[str, Sequence[Message]]:
        refined = line["refined"]["seats"] or {}
        if self.with_feedback:
            return dict(refined)
        drafts = line["draft"]["seats"] or {}
        found = {seat: base_context(drafts.get(seat, []), said, line["feedback"]) for seat, said in refined.items()}
        return {seat: messages for seat, messages in found.items() if messages is not None}

    def provenance(self, sample: ExpertSample, line: Mapping[str, Any]) -> Provenance:
        version = line.get("model_version", line["step"])
        file = line["where"].rpartition(", row ")[0]
        context = "feedback" if self.with_feedback else "base"
        metrics, prompts = line["refined"]["metrics"], line["prompts"]
        return Provenance(self.name, f"model version {version}", file, metrics, None, prompts, context)  # type: ignore[arg-type]


def base_context(draft: Sequence[Message], refined: Sequence[Message], feedback: str) -> list[Message] | None:
    """A refined episode's conversation without the feedback; None where the trace does not give it exactly.

    Args:
        draft, refined: the same seat's messages in both episodes.
    """
    before, after = _opening(draft), _opening(refined)
    base: list[Message] = []
    for place, message in enumerate(after):
        known = before[place] if place < len(before) and before[place]["role"] == message["role"] else None
        if feedback in message["content"]:
            if known is None or not _without_a_block(known["content"], message["content"], feedback):
                return None
            base.append(known)
        elif message["role"] == "system" and message != known:
            return None  # instructions depend on the row alone: something else than the feedback changed
        else:
            base.append(message)
    if base == after:
        return None  # the feedback stands nowhere as it is: who knows in what form it is there
    return [*base, *refined[len(after) :]]


def _opening(messages: Sequence[Message]) -> list[Message]:
    """What a seat saw before its first turn."""
    return list(takewhile(lambda message: message["role"] != TRAINED, messages))


def _without_a_block(shorter: str, longer: str, within: str) -> bool:
    """Whether one text is the other without one block, and that block holds `within`."""
    extra = len(longer) - len(shorter)
    start = len(commonprefix([shorter, longer]))
    end = len(commonprefix([shorter[::-1], longer[::-1]]))
    places = range(max(0, len(shorter) - end), start + 1)  # more than one where the block's ends repeat what is around
    return extra > 0 and any(within in longer[place : place + extra] for place in places)
