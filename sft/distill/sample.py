"""A finished sample as the selection sees it: numbers and digests. Its text stays where it was written.

So a million samples of a hundred kilobytes each can be chosen from in the memory of a laptop.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from sft.distill.conversation import Fingerprints
from sft.distill.heldout import Unseen
from soul.record import Conversations, SessionRecord

Origin = Literal["expert", "trace"]
SEEN, CONTENTLESS, CUT_OFF = "in an evaluation", "contentless", "cut off"


def never_kept(
    cause: str | None,
    seats: Sequence[Fingerprints],
    lost: Mapping[str, int],
    *,
    seen: bool,
    contentless: bool,
    cut_off: bool,
) -> str | None:
    """Why a sample can never be kept, in a word or two; None: it can.

    Args:
        cause: why the attempt has no verdict; None: it has one.
        seats: the conversations that can be trained; `lost`: why others cannot.
    """
    if cause is not None:
        return f"failed: {cause}"
    if seen:
        return SEEN
    if contentless:
        return CONTENTLESS
    if cut_off:
        return CUT_OFF
    return None if seats else f"unusable: {next(iter(lost), 'no seat')}"


@dataclass(frozen=True)
class Place:
    """Where a sample's record stands."""

    file: Path
    offset: int

    def read(self) -> SessionRecord:
        """The record."""
        with self.file.open("rb") as file:
            file.seek(self.offset)
            return SessionRecord.from_line(file.readline(), f"{self.file}: the line at byte {self.offset:,}")


@dataclass(frozen=True)
class ExpertSample:
    """One sample.

    Attributes:
        task: what the report counts by: the name of the launch, or the data_source of a trace.
        data_source: the task.
        row: the fingerprint of the record: rows with equal records are one row.
        number: the row's place in its file; `sample`: number of the sample among those of its row and source.
        reward: None where there is no verdict.
        problem: why it can never be kept, in a word or two; None: it can.
        bar: the reward that it has to beat (a trace's draft); None: the mean of its row.
        seats: the conversations that can be trained; `lost`: how many cannot, by reason.
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
    bar: float | None = None
    seats: tuple[Fingerprints, ...] = ()
    lost: Mapping[str, int] | None = None

    @property
    def key(self) -> tuple[str, ...]:
        """Names the sample: for orders and draws that do not depend on which was finished first."""
        return self.task, self.row, self.source.name, f"{self.number:09}", f"{self.sample:09}", self.place.file.name


@dataclass(frozen=True)
class Provenance:
    """Where a conversation comes from; with `ExpertSample` what its SFT row says of it.

    Attributes:
        expert: who answered, as named; `fingerprint`: what that was: of a checkpoint's files, or model and address.
        judge: the judge's model; None where the verdict is by rule, or where the source does not say.
        prompts: the judge prompts of the task, with their versions.
        context: "feedback" where the messages hold a critique.
    """

    expert: str
    fingerprint: str
    file: str
    metrics: Mapping[str, float]
    judge: str | None
    prompts: Sequence[str]
    context: Literal["base", "feedback"] = "base"


class Source(Protocol):
    """A journal of an expert, or the traces of a run."""

    @property
    def name(self) -> str: ...

    @property
    def origin(self) -> Origin: ...

    def samples(self, unseen: Unseen) -> list[ExpertSample]:
        """All that is there, in an order of its own."""
        ...

    def conversations(self, record: SessionRecord) -> Conversations:
        """Seat -> messages of a record, before what cannot be trained is taken away."""
        ...

    def provenance(self, sample: ExpertSample, record: SessionRecord) -> Provenance:
        """Where the record's conversations come from."""
        ...
