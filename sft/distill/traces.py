"""Forward distillation: turn refined answers of DITTO runs that beat their drafts into SFT rows.

A refined answer was sampled with feedback in its prompt. It is trained in the base context, which is the same prompt
without the feedback. The trace holds both.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Literal

from sft.distill.heldout import HeldOut, RowIdentity
from sft.distill.sample import ExpertSample, Origin, Place, Provenance, finished
from soul.errors import SoulError
from soul.files.trace_files import FOLDER, finished_files
from soul.record import Conversations, SessionRecord, read_records
from soul.rows.task_files import read_rows


class BadTraces(SoulError):
    """A folder has no traces, or the traces cannot be used with these options."""


@dataclass(frozen=True, eq=False)
class RunTraces:
    """The traces of a run.

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
        """The traces of the training steps.

        Raises:
            BadTraces: there are no traces.
        """
        files = [file.path for file in finished_files(self.run / FOLDER, "step")]
        if not files:
            raise BadTraces(
                f"{self.run} has no traces/step_*.jsonl: name the folder of a run (OUTPUT_DIR/EXPERIMENT_NAME)."
            )
        return files

    def samples(self, held_out: HeldOut) -> list[ExpertSample]:
        """The sessions with a refined episode, in the order of the steps.

        Raises:
            BadTraces: rows must be compared with evaluations, but their file is gone.
        """
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

    def provenance(self, sample: ExpertSample, record: SessionRecord) -> Provenance:
        assert record.refined is not None
        version = record.step if record.model_version is None else record.model_version
        context: Literal["base", "feedback"] = "feedback" if self.with_feedback else "base"
        metrics = record.refined.metrics or {}
        return Provenance(self.name, f"model version {version}", record.file, metrics, None, record.prompts, context)
