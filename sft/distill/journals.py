"""Read the experts' samples from the run folders that `sampling.py` writes."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sft.distill.experts import task_of
from sft.distill.heldout import HeldOut, RowIdentity
from sft.distill.sample import ExpertSample, Origin, Place, Provenance, finished
from sft.distill.sampling import ROWS, SOURCES
from soul.evaluate.run.journal import FILE
from soul.evaluate.run.run_folder import BadRun
from soul.evaluate.tables.run_table import models_asked
from soul.record import Conversations, SessionRecord, read_records
from soul.task_types import GroupKey

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
    origin: Origin = field(default="expert", init=False)

    @classmethod
    def load(cls, out: Path, entry: Mapping[str, Any]) -> ExpertJournal:
        """Read the run folder of an entry of sources.json.

        Raises:
            BadRun: a file is missing.
        """
        folder = out / entry["folder"]
        content = {}
        for name in ("settings.json", "chosen.json", ROWS):
            if not (folder / name).is_file():
                raise BadRun(f"{folder} has no {name}: {entry['expert']} was not sampled. Repeat its TASK=EXPERT.")
            content[name] = json.loads((folder / name).read_text(encoding="utf-8"))
        chosen = content["chosen.json"]["samples"]
        wanted = frozenset((name, number, k) for name, pairs in chosen.items() for number, k in pairs)
        rows = {
            name: {int(number): RowIdentity.from_json(row) for number, row in of_set.items()}
            for name, of_set in content[ROWS].items()
        }
        return cls(entry["expert"], folder, entry["sets"], content["settings.json"], rows, wanted)

    def samples(self, held_out: HeldOut) -> list[ExpertSample]:
        """The existing samples, sorted; fewer than `wanted` if sampling stopped early."""
        samples: dict[Key, ExpertSample] = {}
        file = self.folder / FILE
        for start, _, record in read_records(file) if file.is_file() else ():
            if record.key in self.wanted:  # the last line of a sample counts
                samples[record.key] = self._sample(Place(file, start), record, held_out)
        return [samples[key] for key in sorted(samples)]

    def held_out_rows(self, held_out: HeldOut) -> Counter[str]:
        """The number of rows that evaluations hold out, by task."""
        counts: Counter[str] = Counter()
        for name, rows in self.rows.items():
            counts[task_of(name)] += sum(held_out.contains(row) for row in rows.values())
        return +counts  # without zeros

    def near_rows(self, held_out: HeldOut) -> dict[str, list[GroupKey]]:
        """For each task, a key of every row that is nearly, but not quite, a row of an evaluation."""
        near: defaultdict[str, list[GroupKey]] = defaultdict(list)
        for name, rows in self.rows.items():
            for row in rows.values():
                near[task_of(name)] += [key for _, key in held_out.only_near(row)[:1]]
        return near

    def _sample(self, place: Place, record: SessionRecord, held_out: HeldOut) -> ExpertSample:
        return finished(
            self,
            place,
            record,
            record.draft,
            self.rows[record.set][record.number],
            held_out,
            task=task_of(record.set),
            sample=record.sample,
            cause=record.draft.cause,
            cut_off=bool(record.usage["policy"].cut_off),
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
    """The experts of the last command that sampled into `out`; empty if there was none.

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
            f"{file}, or a file that it names, is damaged ({reason}). Repeat every TASK=EXPERT to write it again."
        ) from error


def samples_wanted(expert_journals: Sequence[ExpertJournal]) -> Counter[str]:
    """Task -> number of samples that the last command requested; 0 if evaluations hold out all rows of a task."""
    wanted = Counter(dict.fromkeys((task_of(name) for journal in expert_journals for name in journal.sets), 0))
    for journal in expert_journals:
        wanted.update(task_of(name) for name, _, _ in journal.wanted)
    return wanted


def near_rows(expert_journals: Sequence[ExpertJournal], held_out: HeldOut) -> list[str]:
    """A line for each task that has rows which only nearly are rows of an evaluation."""
    near: defaultdict[str, list[GroupKey]] = defaultdict(list)
    for journal in expert_journals:
        for task, keys in journal.near_rows(held_out).items():
            near[task] += keys
    return [
        f"{task}: {len(keys):,} of them are nearly the text of an evaluation (--near), such as {keys[0]}."
        for task, keys in near.items()
        if keys
    ]
