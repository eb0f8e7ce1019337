"""Forward distillation: the refined answers of DITTO runs that are better than their drafts, as SFT rows.

A refined answer was sampled with feedback in its prompt. It is trained in the base context, which is the same without
the feedback; the trace holds both. A trace of version 1 does not hold the base context, so its answers are not used.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Literal

from sft.distill.heldout import Unseen, fingerprints
from sft.distill.journals import usable
from sft.distill.sample import ExpertSample, Origin, Place, Provenance, never_kept
from soul.errors import SoulError
from soul.record import AttemptRecord, Conversations, SessionRecord, digest, read_records
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
            for start, _, record in read_records(file):
                if record.refined is None:
                    continue
                row = self._row(record, known, unseen)
                place = Place(file, start)
                found.append(self._sample(place, record, record.refined, row, counts[row[0]], unseen))
                counts[row[0]] += 1
        return found

    def _row(
        self, record: SessionRecord, known: dict[str, Sequence[tuple[str, ...]]], unseen: Unseen
    ) -> tuple[str, ...]:
        """The fingerprints of a session's row; of the record that was played alone where its file has gone."""
        file = record.file
        if file not in known:  # the file has the row as it was before the training shortened it, as journals count it
            known[file] = [fingerprints(row) for row in read_rows([file])] if Path(file).is_file() else ()
        if known[file]:
            return known[file][record.number]
        if unseen:
            raise BadTraces(
                f"{self.run}: its rows are those of {file}, which is not there, so --not-in cannot be checked. "
                "Bring the file back, or leave --not-in away."
            )
        return (record.record_hash or digest([record.task, file, record.number]),)  # version 1 has no hash

    def _sample(
        self,
        place: Place,
        record: SessionRecord,
        refined: AttemptRecord,
        row: Sequence[str],
        number: int,
        unseen: Unseen,
    ) -> ExpertSample:
        draft = record.draft
        both = draft.valid and refined.valid
        seats, lost = usable(self.conversations(record)) if both else ((), Counter[str]())
        lost[NO_BASE] += len(refined.seats or {}) - len(seats) - lost.total() if both else 0
        problem = never_kept(
            draft.cause or refined.cause,
            seats,
            +lost,
            seen=unseen.holds(row),
            contentless=refined.contentless,
            cut_off=bool(record.out_of_tokens.get("refined")),
        )
        return ExpertSample(
            source=self,
            place=place,
            task=record.task,
            data_source=record.task,
            row=row[0],
            number=record.number,
            sample=number,
            reward=refined.reward if both else None,
            problem=problem,
            bar=draft.reward,
            seats=seats,
            lost=+lost,
        )

    def conversations(self, record: SessionRecord) -> Conversations:
        assert record.refined is not None
        return (record.refined.seats if self.with_feedback else record.refined.in_base_context()) or {}

    def provenance(self, sample: ExpertSample, record: SessionRecord) -> Provenance:
        assert record.refined is not None
        version = record.step if record.model_version is None else record.model_version
        context: Literal["base", "feedback"] = "feedback" if self.with_feedback else "base"
        metrics = record.refined.metrics or {}
        return Provenance(self.name, f"model version {version}", record.file, metrics, None, record.prompts, context)
