"""A finished sample as the selection sees it: numbers and digests. Its text stays on disk.

This way a laptop can select from a million samples of a hundred kilobytes each. The messages of an SFT row are exactly
those that a seat saw and wrote. Messages after its last turn are dropped, because the policy never saw them.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Protocol

from sft.distill.heldout import HeldOut, RowIdentity
from soul.files.line_file import read_lines
from soul.message import Message
from soul.record import Conversations, SessionRecord
from soul.rows.overlap import ScopedKey
from soul.session import ANSWERED

TRAINED = "assistant"
HELD_OUT, CONTENTLESS, CUT_OFF = "in an evaluation", "contentless", "cut off"
NO_FORM = "without the form"  # that the task asks for, in at least one turn
_GAPS = re.compile(r"[\W_]+")


class Unusable(Exception):
    """A conversation cannot be an SFT row. The text is a short reason, under which it is counted."""


@dataclass(frozen=True)
class Fingerprints:
    """Digests of a seat's conversation, which ignore case, white space and punctuation.

    Attributes:
        whole: digest of all messages.
        trained: digest of the trained turns.
    """

    seat: str
    whole: str
    trained: str


@dataclass(frozen=True)
class Place:
    """The place of a sample's record on disk; `offset` is in bytes."""

    file: Path
    offset: int

    def read(self) -> SessionRecord:
        line = next(read_lines(self.file, self.offset))
        return SessionRecord.from_line(line.text, f"{self.file}: the line at byte {self.offset:,}")


@dataclass(frozen=True)
class ExpertSample:
    """One sample.

    Attributes:
        task: the name that reports count by: TASK of `TASK=EXPERT`.
        data_source: the name of the task class.
        row: the fingerprint of the record; rows with equal records count as one row.
        number: the row's place in its file; `sample`: the sample's number within its row and source.
        reward: None if there is no verdict.
        problem: why no rule can keep it, in a word or two; None if one can.
        seats: fingerprints of the trainable conversations; `lost`: the number of the others by reason.
        keys: the groups that the row is in.
    """

    source: Source
    place: Place
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
        return self.task, self.row, self.source.name, f"{self.number:09}", f"{self.sample:09}", self.place.file.name


@dataclass(frozen=True)
class Provenance:
    """The origin of a conversation; its SFT row holds this and the fields of `ExpertSample`.

    Attributes:
        expert: the model that answered, as the user wrote it.
        fingerprint: hash of the checkpoint's files, or model and address.
        judge: the judge's model; None if the verdict is by rule.
        prompts: the judge prompts of the task, with their versions.
    """

    expert: str
    fingerprint: str
    file: str
    metrics: Mapping[str, float]
    judge: str | None
    prompts: Sequence[str]


class Source(Protocol):
    """An expert's journal."""

    @property
    def name(self) -> str: ...

    def conversations(self, record: SessionRecord) -> Conversations:
        """Seat -> messages of a record, including those that cannot be trained."""
        ...

    def provenance(self, record: SessionRecord) -> Provenance:
        """The origin of the record's conversations."""
        ...


def finished(
    source: Source, place: Place, record: SessionRecord, row: RowIdentity, held_out: HeldOut, task: str
) -> ExpertSample:
    """The sample of a record; `row` is the record's row."""
    attempt, cause = record.draft, record.draft.cause  # cause: why the sample has no verdict; None if it has one
    conversations = source.conversations(record) if cause is None else {}
    seats, lost = [], Counter[str]()
    for seat, messages in conversations.items():
        try:
            seats.append(seat_fingerprints(seat, trainable(messages)))
        except Unusable as reason:
            lost[str(reason)] += 1
    problem = None if seats else f"unusable: {next(iter(lost), 'no seat')}"
    if cause is not None:
        problem = f"failed: {cause}"
    elif held_out.contains(row):
        problem = HELD_OUT
    elif attempt.contentless:
        problem = CONTENTLESS
    elif record.usage["policy"].cut_off:
        problem = CUT_OFF
    elif seats and (attempt.metrics or {}).get(ANSWERED, 1.0) < 1.0:  # some tasks score it, but it would teach no form
        problem = NO_FORM
    return ExpertSample(
        source=source,
        place=place,
        task=task,
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
    return hashlib.blake2b(b"".join(_digest_of(text) for text in texts), digest_size=16).hexdigest()


@lru_cache(maxsize=1024)  # the samples of a row share a prompt, which is most of their text
def _digest_of(text: str) -> bytes:
    return hashlib.blake2b(normalised(text).encode(), digest_size=16).digest()


def normalised(text: str) -> str:
    """The words of a text in lower case; a text without words stays as it is, so that "!" and "?" differ."""
    folded = unicodedata.normalize("NFKC", text).casefold()
    return _GAPS.sub(" ", folded).strip() or folded.strip()
