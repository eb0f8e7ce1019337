"""The samples of experts, read from the run folders that `sampling.py` leaves."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sft.distill.conversation import Fingerprints, Unusable, seat_fingerprints, trainable
from sft.distill.experts import task_of
from sft.distill.heldout import Unseen
from sft.distill.sample import ExpertSample, Origin, Place, Provenance, never_kept
from sft.distill.sampling import ROWS, SOURCES
from soul.evaluate.run.journal import FILE
from soul.evaluate.run.run_folder import BadRun
from soul.evaluate.tables.notes import models_asked
from soul.record import Conversations, SessionRecord, read_records

Key = tuple[str, int, int]


@dataclass(frozen=True, eq=False)
class ExpertJournal:
    """The run folder of one expert.

    Attributes:
        name: of the expert, as given.
        sets: set -> its parquet file.
        settings: what determined answers and verdicts (`EvaluationSettings.identity`).
        rows: set -> number of the row -> its `fingerprints`.
        wanted: the samples that the last command asked for.
    """

    name: str
    folder: Path
    sets: Mapping[str, str]
    settings: Mapping[str, Any]
    rows: Mapping[str, Mapping[str, Sequence[str]]]
    wanted: frozenset[Key]
    origin: Origin = field(default="expert", init=False)

    @classmethod
    def load(cls, out: Path, entry: Mapping[str, Any]) -> ExpertJournal:
        """Read what an entry of sources.json names.

        Raises:
            BadRun: a file is missing.
        """
        folder = out / entry["folder"]
        found = {}
        for name in ("settings.json", "chosen.json", ROWS):
            if not (folder / name).is_file():
                raise BadRun(f"{folder} has no {name}: {entry['expert']} was not sampled. Give its TASK=EXPERT again.")
            found[name] = json.loads((folder / name).read_text(encoding="utf-8"))
        chosen = found["chosen.json"]["samples"]
        wanted = frozenset((name, number, k) for name, of_set in chosen.items() for number, k in of_set)
        return cls(entry["expert"], folder, entry["sets"], found["settings.json"], found[ROWS], wanted)

    def samples(self, unseen: Unseen) -> list[ExpertSample]:
        """The samples that are there, sorted; less than `wanted` where the sampling stopped early."""
        found: dict[Key, ExpertSample] = {}
        file = self.folder / FILE
        for start, _, record in read_records(file) if file.is_file() else ():
            if record.key in self.wanted:  # of several lines the last counts
                found[record.key] = self._sample(Place(file, start), record, unseen)
        return [found[key] for key in sorted(found)]

    def seen(self, unseen: Unseen) -> Counter[str]:
        """Rows of evaluations among those that were looked at, by task."""
        found: Counter[str] = Counter()
        for name, of_set in self.rows.items():
            found[task_of(name)] += sum(unseen.holds(known) for known in of_set.values())
        return +found

    def _sample(self, place: Place, record: SessionRecord, unseen: Unseen) -> ExpertSample:
        draft = record.draft
        known = self.rows[record.set][str(record.number)]
        seats, lost = usable(self.conversations(record)) if draft.valid else ((), Counter())
        problem = never_kept(
            draft.cause,
            seats,
            lost,
            seen=unseen.holds(known),
            contentless=draft.contentless,
            cut_off=bool(record.usage["policy"].cut_off),
        )
        return ExpertSample(
            source=self,
            place=place,
            task=task_of(record.set),
            data_source=record.task,
            row=known[0],
            number=record.number,
            sample=record.sample,
            reward=draft.reward,
            problem=problem,
            seats=seats,
            lost=lost,
        )

    def conversations(self, record: SessionRecord) -> Conversations:
        return record.draft.seats or {}

    def provenance(self, sample: ExpertSample, record: SessionRecord) -> Provenance:
        policy = self.settings["policy"]
        fingerprint = policy.get("checkpoint") or f"{policy['model']} at {policy['base_url']}"
        judge = "+".join(models_asked(self.settings, "judge", record.task)) or None  # None: a verdict by rule
        file = self.sets[record.set]
        return Provenance(self.name, fingerprint, file, record.draft.metrics or {}, judge, record.prompts)


def journals(out: Path) -> list[ExpertJournal]:
    """The experts of the last command that sampled into `out`; none where none did.

    Raises:
        BadRun: a file is missing or damaged.
    """
    file = out / SOURCES
    if not file.is_file():
        return []
    try:
        return [ExpertJournal.load(out, entry) for entry in json.loads(file.read_text(encoding="utf-8"))["experts"]]
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        reason = f"{type(error).__name__}: {error}"
        raise BadRun(
            f"{file}, or a file that it names, is damaged ({reason}). Give every TASK=EXPERT again: that writes them."
        ) from error


def usable(seats: Conversations) -> tuple[tuple[Fingerprints, ...], Counter[str]]:
    """The digests of the conversations that can be trained, and how many cannot, by reason."""
    found, lost = [], Counter[str]()
    for seat, messages in seats.items():
        try:
            found.append(seat_fingerprints(seat, trainable(messages)))
        except Unusable as reason:
            lost[str(reason)] += 1
    return tuple(found), lost
