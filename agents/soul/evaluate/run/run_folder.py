"""The folder of an evaluation, which reports, comparisons, exports and rescoring read.

settings.json    the settings that determine answers and verdicts; the folder's name ends with their hash
chosen.json      the samples that the last start requested: sets, limit, seed and keys
samples.jsonl    the journal (journal.py); it may hold more samples, from earlier starts
judge_checks.json    how its judges did on replies that deserve nothing (judge_check.py)
"""

from __future__ import annotations

import json
import logging
import shutil
import signal
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from soul import tasks
from soul.errors import SoulError
from soul.evaluate.run.journal import FILE, Journal, Key, read_samples
from soul.evaluate.run.judge_check import JudgeChecks, problems_of
from soul.evaluate.run.settings import EvaluationSettings, SampleRequest
from soul.files.json_object import read_object
from soul.files.whole_file import write_whole
from soul.record import SessionRecord

logger = logging.getLogger(__name__)

SETTINGS, CHOSEN = "settings.json", "chosen.json"
_REMEDY = "The command that made the run writes the file again."


class BadRun(SoulError):
    """A folder is not the folder of an evaluation."""


@dataclass(frozen=True)
class EvaluationRun:
    """A finished or partial evaluation.

    Attributes:
        settings: settings.json: policy, roles, jury, ... (`EvaluationSettings.identity`).
        wanted: set -> number of samples that the last start requested; sets in the order of the request.
        limit, n, seed, suite: of the last start.
        missing: names of requested sets that have no file.
        stand_ins: set -> why its rows are not the paper's, for the sets whose file says so (`data_card.SetCard`).
        samples: the finished ones of the requested samples, ordered by set, row and sample.
    """

    folder: Path
    settings: Mapping[str, Any]
    wanted: Mapping[str, int]
    limit: int | None
    n: int
    seed: int
    samples: Sequence[SessionRecord]
    missing: Sequence[str] = ()
    suite: str | None = None
    stand_ins: Mapping[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The name of the model under test."""
        return str(self.settings["policy"]["model"])

    @property
    def sets(self) -> list[str]:
        return list(self.wanted)

    @cached_property
    def by_set(self) -> Mapping[str, Sequence[SessionRecord]]:
        """The samples of each set."""
        samples: dict[str, list[SessionRecord]] = {name: [] for name in self.wanted}
        for sample in self.samples:
            samples[sample.set].append(sample)
        return samples

    @cached_property
    def judge_checks(self) -> JudgeChecks:
        """The tests of its judges."""
        return JudgeChecks.read(self.folder)

    def judge_problems(self, task: str) -> dict[str, list[str]]:
        """The judges of a task that failed their test (judge_check.py): model -> what is wrong."""
        if task not in tasks.names() or not tasks.load(task).calls_per_episode.get("judge"):
            return {}
        asked = endpoints_asked(self.settings, "judge", task)
        problems = ((one["model"], problems_of(self.judge_checks.checks, one)) for one in asked)
        return {model: found for model, found in problems if found}

    @property
    def ended(self) -> datetime:
        """When the last sample was written, in UTC."""
        return datetime.fromtimestamp((self.folder / FILE).stat().st_mtime, UTC)

    @classmethod
    def load(cls, folder: Path, samples: Mapping[Key, SessionRecord] | None = None) -> EvaluationRun:
        """Read a run's folder.

        Args:
            samples: those of its journal, if it is open; None: read them.

        Raises:
            BadRun: a file is missing or damaged. BadRecord: a line of the journal is damaged.
        """
        for name in (SETTINGS, CHOSEN, FILE):
            if not (folder / name).is_file():
                raise BadRun(
                    f"{folder} has no {name}: it is not the folder of an evaluation. Such folders are called NAME-HASH."
                )
        settings, chosen = (read_object(folder / name, BadRun, _REMEDY) for name in (SETTINGS, CHOSEN))
        samples = read_samples(folder) if samples is None else samples
        try:
            settings["policy"]["model"]
            requested: dict[str, list[tuple[int, int]]] = chosen.pop("samples")
            keys = [(name, int(number), int(k)) for name, pairs in requested.items() for number, k in pairs]
            wanted = {name: len(pairs) for name, pairs in requested.items()}
            return cls(folder, settings, wanted, samples=[samples[key] for key in keys if key in samples], **chosen)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise BadRun(
                f"{folder}: {SETTINGS} and {CHOSEN} lack the model or the requested samples "
                f"({type(error).__name__}: {error}). {_REMEDY}"
            ) from None


def endpoints_asked(settings: Mapping[str, Any], role: str, task: str) -> list[Mapping[str, Any]]:
    """The endpoints with this role for a task of a run; several are a jury.

    Args:
        settings: `EvaluationRun.settings`.
    """
    if role != "judge":
        return [settings["roles"].get(role, settings["roles"]["judge"])]
    if own := settings["by_task"].get(task):
        return [own]
    return list(settings["jury"]) or [settings["roles"]["judge"]]


def set_outdated_aside(folder: Path, requests: Sequence[SampleRequest]) -> None:
    """Take the samples whose record, prompt or task version has changed out of the journal, after a copy of it."""
    known, stamps = read_samples(folder), {request.key: request.stamp for request in requests}
    kept = [sample for key, sample in known.items() if stamps.get(key, sample.stamp) == sample.stamp]
    if len(kept) < len(known):
        old = folder / f"{FILE}.{1 + len(list(folder.glob(f'{FILE}.*')))}"
        shutil.copyfile(folder / FILE, old)
        write_whole(folder / FILE, (f"{sample.to_line()}\n" for sample in kept))
        changed = "%s: records, prompts or tasks have changed for %d of %d samples, which run again; the old are in %s"
        logger.info(changed, folder, len(known) - len(kept), len(known), old.name)


def write_choice(folder: Path, settings: EvaluationSettings, requests: Sequence[SampleRequest]) -> None:
    """Write settings.json and chosen.json."""
    write_whole(folder / SETTINGS, json.dumps(settings.identity(), indent=1))
    samples: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
    for request in requests:
        samples[request.set].append((request.row.number, request.sample))
    chosen = settings.model_dump(include={"limit", "n", "seed", "suite", "stand_ins"})
    chosen |= {"missing": list(settings.missing), "samples": {name: sorted(samples[name]) for name in settings.sets}}
    write_whole(folder / CHOSEN, json.dumps(chosen))


class Interrupted(SoulError):
    """Ctrl-C or SIGTERM ended the run; the message says what is kept and how to continue."""

    exit_code: ClassVar[int] = 128 + signal.SIGINT


@contextmanager
def interruptible(wanted: Sequence[SampleRequest], journal: Journal) -> Iterator[None]:
    """Report an interruption of the work in this block: raise Interrupted instead of KeyboardInterrupt."""
    try:
        yield
    except KeyboardInterrupt:
        kept = len({request.key for request in wanted} & journal.samples.keys())
        raise Interrupted(
            f"{kept:,} of {len(wanted):,} samples are kept in {journal.folder}; run the same command to continue."
        ) from None
