"""The samples to select from, in the experts' run folders, which `sampling.py` writes."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sft.distill.experts import task_of
from sft.distill.heldout import HeldOut, RowIdentity
from sft.distill.sample import ExpertSample, Place, Provenance, finished
from sft.distill.sampling import ROWS, SOURCES
from soul.evaluate.run.journal import FILE
from soul.evaluate.run.run_folder import BadRun
from soul.evaluate.tables.run_table import models_asked
from soul.record import Conversations, SessionRecord, read_records

Key = tuple[str, int, int]


@dataclass(frozen=True, eq=False)
class ExpertJournal:
    """The run folder of one expert.

    Attributes:
        name: the expert, as the user wrote it.
        sets: set -> its parquet file.
        settings: all settings that affect answers and verdicts (`EvaluationSettings.identity`).
        rows: set -> number of the row -> what it is.
        wanted: keys of the samples that the last command requested.
    """

    name: str
    folder: Path
    sets: Mapping[str, str]
    settings: Mapping[str, Any]
    rows: Mapping[str, Mapping[int, RowIdentity]]
    wanted: frozenset[Key]

    @classmethod
    def load(cls, out: Path, entry: Mapping[str, Any]) -> ExpertJournal:
        """Read the run folder of an entry of sources.json."""
        folder = out / entry["folder"]
        settings, chosen, rows = (
            json.loads((folder / name).read_text(encoding="utf-8")) for name in ("settings.json", "chosen.json", ROWS)
        )
        wanted = frozenset((name, number, k) for name, pairs in chosen["samples"].items() for number, k in pairs)
        identities = {
            name: {int(number): RowIdentity.from_json(row) for number, row in of_set.items()}
            for name, of_set in rows.items()
        }
        return cls(entry["expert"], folder, entry["sets"], settings, identities, wanted)

    def samples(self, held_out: HeldOut) -> list[ExpertSample]:
        """The existing samples, sorted; fewer than `wanted` if sampling stopped early."""
        samples: dict[Key, ExpertSample] = {}
        file = self.folder / FILE
        for start, _, record in read_records(file) if file.is_file() else ():
            if record.key not in self.wanted:
                continue
            samples[record.key] = finished(  # the last line of a sample counts
                self,
                Place(file, start),
                record,
                self.rows[record.set][record.number],
                held_out,
                task_of(record.set),
            )
        return [samples[key] for key in sorted(samples)]

    def held_out_rows(self, held_out: HeldOut) -> Counter[str]:
        """The number of rows that evaluations hold out, by task."""
        counts: Counter[str] = Counter()
        for name, rows in self.rows.items():
            counts[task_of(name)] += sum(held_out.contains(row) for row in rows.values())
        return +counts  # without zeros

    def conversations(self, record: SessionRecord) -> Conversations:
        return record.draft.seats or {}

    def provenance(self, record: SessionRecord) -> Provenance:
        policy = self.settings["policy"]
        fingerprint = policy.get("checkpoint") or f"{policy['model']} at {policy['base_url']}"
        judge = "+".join(models_asked(self.settings, "judge", record.task)) or None  # None: a verdict by rule
        file = self.sets[record.set]
        return Provenance(self.name, fingerprint, file, record.draft.metrics or {}, judge, record.prompts)


def journals(out: Path) -> list[ExpertJournal]:
    """The experts of the last command that sampled into `out`; empty if there was none."""
    file = out / SOURCES
    if not file.is_file():
        return []
    try:
        return [ExpertJournal.load(out, entry) for entry in json.loads(file.read_text(encoding="utf-8"))["experts"]]
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        reason = f"{type(error).__name__}: {error}"
        raise BadRun(
            f"{file}, or a file that it names, is missing or damaged ({reason}). Repeat every TASK=EXPERT to write it "
            "again."
        ) from error


def samples_wanted(expert_journals: Sequence[ExpertJournal]) -> Counter[str]:
    """Task -> number of samples that the last command requested; 0 if evaluations hold out all rows of a task."""
    wanted = Counter(dict.fromkeys((task_of(name) for journal in expert_journals for name in journal.sets), 0))
    for journal in expert_journals:
        wanted.update(task_of(name) for name, _, _ in journal.wanted)
    return wanted
