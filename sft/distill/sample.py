"""The samples of the experts' run folders, as the selection sees them: numbers and digests. Their text stays on disk.

This way a laptop can select from a million samples of a hundred kilobytes each. The messages of an SFT row are exactly
those that a seat saw and wrote. Messages after its last turn are dropped, because the policy never saw them.
"""

from __future__ import annotations

import hashlib
import json
import re
import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from sft.distill.experts import task_of
from sft.distill.sampling import ROWS, SOURCES, RowIdentity
from soul.evaluate.run.journal import FILE
from soul.evaluate.run.run_folder import BadRun
from soul.evaluate.tables.run_table import models_asked
from soul.files.line_file import read_lines
from soul.message import Message
from soul.record import SessionRecord, read_records
from soul.rows.overlap import HeldOut, ScopedKey
from soul.session import ANSWERED

TRAINED = "assistant"
HELD_OUT, CONTENTLESS, CUT_OFF = "in an evaluation", "contentless", "cut off"
NO_FORM = "without the form"  # that the task asks for, in at least one turn
_GAPS = re.compile(r"[\W_]+")
Key = tuple[str, int, int]


class Unusable(Exception):
    """A conversation cannot be an SFT row. The text is a short reason, under which it is counted."""


@dataclass(frozen=True)
class Fingerprints:
    """Digests of a seat's conversation, which ignore case, white space and punctuation."""

    seat: str
    whole: str  # of all messages
    trained: str  # of the trained turns


@dataclass(frozen=True)
class ExpertSample:
    """One sample.

    Attributes:
        offset: of its record in the journal, in bytes.
        task: the name that reports count by: TASK of `TASK=EXPERT`.
        data_source: the name of the task class.
        row: the fingerprint of the record; rows with equal records count as one row.
        number: the row's place in its file; `sample`: the sample's number within its row and journal.
        reward: None if there is no verdict.
        problem: why no rule can keep it, in a word or two; None if one can.
        seats: fingerprints of the trainable conversations; `lost`: the number of the others by reason.
        keys: the groups that the row is in.
    """

    journal: ExpertJournal
    offset: int
    task: str
    data_source: str
    row: str
    number: int
    sample: int
    reward: float | None
    problem: str | None = None
    seats: tuple[Fingerprints, ...] = ()
    lost: Mapping[str, int] | None = None
    keys: tuple[ScopedKey, ...] = ()

    @property
    def key(self) -> tuple[str, ...]:
        """Identifies the sample, for orders and draws that do not depend on which one finished first."""
        return self.task, self.row, self.journal.name, f"{self.number:09}", f"{self.sample:09}", FILE

    def record(self) -> SessionRecord:
        """Read its record."""
        file = self.journal.folder / FILE
        line = next(read_lines(file, self.offset))
        return SessionRecord.from_line(line.text, f"{file}: the line at byte {self.offset:,}")


@dataclass(frozen=True, eq=False)
class ExpertJournal:
    """The run folder of one expert.

    Attributes:
        name: the expert, as the user wrote it.
        sets: set -> its parquet file.
        settings: all settings that affect answers and verdicts (`EvaluationSettings.identity`).
        rows: set -> number of the row -> what it is.
        held_out: the rows that evaluations hold out, by set and number.
        wanted: keys of the samples that the last command requested.
    """

    name: str
    folder: Path
    sets: Mapping[str, str]
    settings: Mapping[str, Any]
    rows: Mapping[str, Mapping[int, RowIdentity]]
    held_out: frozenset[tuple[str, int]]
    wanted: frozenset[Key]

    @classmethod
    def load(cls, out: Path, entry: Mapping[str, Any], held_out: HeldOut) -> ExpertJournal:
        """Read the run folder of an entry of sources.json."""
        folder = out / entry["folder"]
        settings, chosen, stored = (
            json.loads((folder / name).read_text(encoding="utf-8")) for name in ("settings.json", "chosen.json", ROWS)
        )
        wanted = frozenset((name, number, k) for name, pairs in chosen["samples"].items() for number, k in pairs)
        rows = {
            name: {int(number): RowIdentity.from_json(row) for number, row in of_set.items()}
            for name, of_set in stored.items()
        }
        every = ((name, number, row) for name, of_set in rows.items() for number, row in of_set.items())
        evaluated = frozenset((name, number) for name, number, row in every if held_out.shared_keys(row.keys))
        return cls(entry["expert"], folder, entry["sets"], settings, rows, evaluated, wanted)

    @property
    def fingerprint(self) -> str:
        """The hash of the checkpoint's files, or model and address."""
        policy = self.settings["policy"]
        return policy.get("checkpoint") or f"{policy['model']} at {policy['base_url']}"

    def judge(self, task: str) -> str | None:
        """The model that scores a task; None if a rule does."""
        return "+".join(models_asked(self.settings, "judge", task)) or None

    def samples(self) -> list[ExpertSample]:
        """The existing samples, sorted; fewer than `wanted` if sampling stopped early."""
        file = self.folder / FILE
        lines = read_records(file) if file.is_file() else ()
        # The last line of a sample counts.
        found = {one.key: self._sample(start, one) for start, _, one in lines if one.key in self.wanted}
        return [found[key] for key in sorted(found)]

    def _sample(self, offset: int, record: SessionRecord) -> ExpertSample:
        attempt, cause = record.draft, record.draft.cause  # cause: why the sample has no verdict; None if it has one
        seats, lost = [], Counter[str]()
        for seat, messages in ((attempt.seats or {}) if cause is None else {}).items():
            try:
                seats.append(seat_fingerprints(seat, trainable(messages)))
            except Unusable as reason:
                lost[str(reason)] += 1
        problem = None if seats else f"unusable: {next(iter(lost), 'no seat')}"
        if cause is not None:
            problem = f"failed: {cause}"
        elif (record.set, record.number) in self.held_out:
            problem = HELD_OUT
        elif attempt.contentless:
            problem = CONTENTLESS
        elif record.usage["policy"].cut_off:
            problem = CUT_OFF
        elif seats and (attempt.metrics or {}).get(ANSWERED, 1.0) < 1.0:  # some tasks score it, but it teaches no form
            problem = NO_FORM
        row = self.rows[record.set][record.number]
        return ExpertSample(
            journal=self,
            offset=offset,
            task=task_of(record.set),
            data_source=record.task,
            row=row.record,
            number=record.number,
            sample=record.sample,
            reward=attempt.reward if cause is None else None,
            problem=problem,
            seats=tuple(seats),
            lost=lost,
            keys=row.keys,
        )


def journals(out: Path, held_out: HeldOut) -> list[ExpertJournal]:
    """The experts of the last command that sampled into `out`; empty if there was none."""
    file = out / SOURCES
    if not file.is_file():
        return []
    try:
        entries = json.loads(file.read_text(encoding="utf-8"))["experts"]
        return [ExpertJournal.load(out, entry, held_out) for entry in entries]
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


def trainable(messages: Sequence[Message]) -> list[Message]:
    """Cut the conversation after the policy's last turn."""
    last = max((place for place, message in enumerate(messages) if message["role"] == TRAINED), default=None)
    if last is None:
        raise Unusable("no turn")
    kept: list[Message] = [{"role": m["role"], "content": m["content"]} for m in messages[: last + 1]]
    if not all(message["content"].strip() for message in kept if message["role"] == TRAINED):
        raise Unusable("blank turn")
    try:
        "".join(message["content"] for message in kept).encode()
    except UnicodeEncodeError:
        raise Unusable("broken character") from None
    return kept


def seat_fingerprints(seat: str, conversation: Sequence[Message]) -> Fingerprints:
    """Fingerprint a trainable conversation."""
    trained = [message["content"] for message in conversation if message["role"] == TRAINED]
    whole = [text for message in conversation for text in (message["role"], message["content"])]
    return Fingerprints(seat, digest(whole), digest(trained))


def digest(texts: Sequence[str]) -> str:
    """Hash the normalised texts, in order."""
    return hashlib.blake2b("\0".join(map(normalised, texts)).encode(), digest_size=16).hexdigest()


@lru_cache(maxsize=256)  # the samples of a row share a prompt, which is most of their text
def normalised(text: str) -> str:
    """The words of a text in lower case; a text without words stays as it is, so that "!" and "?" differ."""
    folded = unicodedata.normalize("NFKC", text).casefold()
    return _GAPS.sub(" ", folded).strip() or folded.strip()
