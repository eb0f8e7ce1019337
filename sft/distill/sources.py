"""The samples to select from: the experts' (`sampling.py` writes their run folders), and refined answers of DITTO runs.

A refined answer was sampled with feedback in its prompt. It is trained in the base context, which is the same prompt
without the feedback. The trace holds both.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from sft.distill.experts import task_of
from sft.distill.heldout import HeldOut, RowIdentity
from sft.distill.sample import ExpertSample, Origin, Place, Provenance, finished
from sft.distill.sampling import ROWS, SOURCES
from soul.errors import SoulError
from soul.evaluate.run.journal import FILE
from soul.evaluate.run.run_folder import BadRun
from soul.evaluate.tables.run_table import models_asked
from soul.files.trace_files import FOLDER, finished_files
from soul.record import Conversations, SessionRecord, read_records
from soul.rows.task_files import read_rows

Key = tuple[str, int, int]


class BadTraces(SoulError):
    """A folder has no traces, or the traces cannot be used with these options."""


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
                record.draft,
                self.rows[record.set][record.number],
                held_out,
                task=task_of(record.set),
                sample=record.sample,
                cause=record.draft.cause,
                cut_off=bool(record.usage["policy"].cut_off),
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


@dataclass(frozen=True, eq=False)
class RunTraces:
    """The traces of a DITTO run.

    Attributes:
        with_feedback: use the messages of the refined episode unchanged, including the feedback.
    """

    run: Path
    with_feedback: bool = False
    origin: Origin = field(default="trace", init=False)

    @property
    def name(self) -> str:
        return str(self.run)

    @cached_property
    def files(self) -> list[Path]:
        """The traces of the training steps."""
        files = [file.path for file in finished_files(self.run / FOLDER, "step")]
        if not files:
            raise BadTraces(
                f"{self.run} has no traces/step_*.jsonl: pass the folder of a run (OUTPUT_DIR/EXPERIMENT_NAME)."
            )
        return files

    def samples(self, held_out: HeldOut) -> list[ExpertSample]:
        """The sessions with a refined episode, in the order of the steps."""
        task_files: dict[str, Sequence[RowIdentity]] = {}  # task file -> its rows
        counts: Counter[str] = Counter()
        samples = []
        for file in self.files:
            for start, _, record in read_records(file):
                if record.refined is None:
                    continue
                row = self._row(record, task_files, held_out)
                sample = finished(
                    self,
                    Place(file, start),
                    record,
                    record.refined,
                    row,
                    held_out,
                    task=record.task,
                    sample=counts[row.record],
                    cause=record.draft.cause or record.refined.cause,
                    cut_off=bool(record.out_of_tokens.get("refined")),
                    bar=record.draft.reward,
                )
                samples.append(sample)
                counts[row.record] += 1
        return samples

    def _row(
        self, record: SessionRecord, task_files: dict[str, Sequence[RowIdentity]], held_out: HeldOut
    ) -> RowIdentity:
        """The row of a session; if its file is gone, only the hash of the record that was played."""
        file = record.file
        if file not in task_files:  # the file holds the row before training shortened it, as journals fingerprint it
            task_files[file] = [RowIdentity.from_row(row) for row in read_rows([file])] if Path(file).is_file() else ()
        if task_files[file]:
            return task_files[file][record.number]
        if held_out:
            raise BadTraces(
                f"{self.run}: its rows come from {file}, which does not exist, so --not-in cannot be checked. "
                "Restore the file, or omit --not-in."
            )
        return RowIdentity(record.record_hash)

    def conversations(self, record: SessionRecord) -> Conversations:
        assert record.refined is not None
        return (record.refined.seats or {}) if self.with_feedback else record.refined.in_base_context()

    def provenance(self, record: SessionRecord) -> Provenance:
        assert record.refined is not None
        version = record.step if record.model_version is None else record.model_version
        context: Literal["base", "feedback"] = "feedback" if self.with_feedback else "base"
        metrics, model = record.refined.metrics or {}, f"model version {version}"
        return Provenance(self.name, model, record.file, metrics, None, record.prompts, context)
