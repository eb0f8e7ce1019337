"""The samples of experts, read from the run folders that `sampling.py` leaves."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
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
from soul.message import Message

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
        for offset, line in lines(self.folder / FILE):
            key = line["set"], line["number"], line["sample"]
            if key in self.wanted:  # of several lines the last counts
                found[key] = self._sample(Place(self.folder / FILE, offset), line, unseen)
        return [found[key] for key in sorted(found)]

    def seen(self, unseen: Unseen) -> Counter[str]:
        """Rows of evaluations among those that were looked at, by task."""
        found: Counter[str] = Counter()
        for name, of_set in self.rows.items():
            found[task_of(name)] += sum(unseen.holds(known) for known in of_set.values())
        return +found

    def _sample(self, place: Place, line: Mapping[str, Any], unseen: Unseen) -> ExpertSample:
        draft = line["draft"]
        known = self.rows[line["set"]][str(line["number"])]
        seats, lost = usable(self.conversations(line)) if draft["valid"] else ((), Counter())
        problem = never_kept(
            None if draft["valid"] else draft["failure"] or {},
            seats,
            lost,
            seen=unseen.holds(known),
            contentless=draft["contentless"],
            cut_off=bool(line["usage"]["policy"].get("cut_off")),
        )
        return ExpertSample(
            source=self,
            place=place,
            task=task_of(line["set"]),
            data_source=line["task"],
            row=known[0],
            number=line["number"],
            sample=line["sample"],
            reward=draft["reward"],
            problem=problem,
            seats=seats,
            lost=lost,
        )

    def conversations(self, line: Mapping[str, Any]) -> Mapping[str, Sequence[Message]]:
        return dict(line["draft"]["seats"] or {})

    def provenance(self, sample: ExpertSample, line: Mapping[str, Any]) -> Provenance:
        policy = self.settings["policy"]
        fingerprint = policy.get("checkpoint") or f"{policy['model']} at {policy['base_url']}"
        judge = "+".join(models_asked(self.settings, "judge", line["task"])) or None  # None: a verdict by rule
        file = self.sets[line["set"]]
        return Provenance(self.name, fingerprint, file, line["draft"]["metrics"], judge, line["prompts"])


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


def usable(seats: Mapping[str, Sequence[Message]]) -> tuple[tuple[Fingerprints, ...], Counter[str]]:
    """The digests of the conversations that can be trained, and how many cannot, by reason."""
    found, lost = [], Counter[str]()
    for seat, messages in seats.items():
        try:
            found.append(seat_fingerprints(seat, trainable(messages)))
        except Unusable as reason:
            lost[str(reason)] += 1
    return tuple(found), lost


def lines(file: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """The lines of a journal or trace with their places; one that a crash cut short is left out.

    Raises:
        BadRun: a line is no JSON object.
    """
    if not file.is_file():
        return
    offset = 0
    with file.open("rb") as opened:
        for line in opened:
            if line.endswith(b"\n"):
                try:
                    yield offset, dict(json.loads(line))
                except (ValueError, TypeError) as error:
                    raise BadRun(f"{file}: the line at byte {offset:,} is no sample ({error}). Remove it.") from None
            offset += len(line)
