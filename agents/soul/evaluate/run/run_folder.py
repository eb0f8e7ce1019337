"""The folder of an evaluation, for everything that reads it later: reports, comparisons, exports, another judge.

settings.json    what determines answers and verdicts; the folder's hash is of it
chosen.json      the samples that the last start asked for: sets, limit, seed, and the keys themselves
samples.jsonl    the journal (journal.py); it may hold samples of earlier starts that asked for more
"""

from __future__ import annotations

import json
import shutil
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from soul.errors import SoulError
from soul.evaluate.run.journal import FILE, Journal, Key, read_samples
from soul.evaluate.run.settings import EvaluationSettings, SampleRequest
from soul.files.json_object import read_object
from soul.files.whole_file import write_whole
from soul.record import SessionRecord

_REMEDY = "The command that made the run writes the file again."


class BadRun(SoulError):
    """A folder is not that of an evaluation."""


@dataclass(frozen=True)
class EvaluationRun:
    """An evaluation that is finished, or as far as it has come.

    Attributes:
        settings: of settings.json: policy, roles, jury, ... (`EvaluationSettings.identity`).
        wanted: set -> how many samples were asked for, in the order in which the sets were asked for.
        limit, n, seed: of the last start.
        missing: names of sets that the last start asked for and that have no file.
        suite: the suite that the last start named.
        samples: the journal's records of these, in the order of sets, rows and samples; those that are there.
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

    @property
    def name(self) -> str:
        """Of the model under test."""
        return str(self.settings["policy"]["model"])

    @property
    def sets(self) -> list[str]:
        return list(self.wanted)

    @classmethod
    def load(cls, folder: Path, samples: Mapping[Key, SessionRecord] | None = None) -> EvaluationRun:
        """Read a run's folder.

        Args:
            samples: of its journal, where that is open; None: they are read.

        Raises:
            BadRun: a file is missing or damaged. BadRecord: a line of the journal is.
        """
        for name in ("settings.json", "chosen.json", FILE):
            if not (folder / name).is_file():
                raise BadRun(
                    f"{folder} has no {name}: it is not the folder of an evaluation. They are named NAME-HASH."
                )
        settings, chosen = _settings(folder / "settings.json"), _chosen(folder / "chosen.json")
        samples = read_samples(folder) if samples is None else samples
        keys = [(name, number, k) for name, of_set in chosen["samples"].items() for number, k in of_set]
        return cls(
            folder=folder,
            settings=settings,
            wanted={name: len(of_set) for name, of_set in chosen["samples"].items()},
            limit=chosen["limit"],
            n=chosen["n"],
            seed=chosen["seed"],
            samples=[samples[key] for key in keys if key in samples],
            missing=chosen.get("missing", ()),
            suite=chosen.get("suite"),
        )


def endpoints_asked(settings: Mapping[str, Any], role: str, task: str) -> list[Mapping[str, Any]]:
    """The endpoints that have this role for a task in a run; several are a jury.

    Args:
        settings: of the run (`EvaluationRun.settings`).
    """
    if role != "judge":
        return [settings["roles"].get(role, settings["roles"]["judge"])]
    if own := settings["by_task"].get(task):
        return [own]
    return list(settings["jury"]) or [settings["roles"]["judge"]]


def _settings(path: Path) -> dict[str, Any]:
    """What settings.json holds, of which everything reads at least the model's name."""
    settings = read_object(path, BadRun, _REMEDY)
    if not isinstance(settings.get("policy"), dict) or "model" not in settings["policy"]:
        raise BadRun(f"{path} names no model (policy.model). {_REMEDY}")
    return settings


def _chosen(path: Path) -> dict[str, Any]:
    """What chosen.json holds."""
    chosen = read_object(path, BadRun, _REMEDY)
    try:
        {name: [(int(number), int(k)) for number, k in of_set] for name, of_set in chosen["samples"].items()}
        chosen["limit"], chosen["n"], chosen["seed"]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        reason = f"{type(error).__name__}: {error}"
        raise BadRun(f"{path} does not say which samples were asked for ({reason}). {_REMEDY}") from None
    return chosen


def resolve_run_folder(folder: Path, items: Sequence[SampleRequest]) -> Path:
    """The folder in which these samples are to be taken: the latest of its kind (`NAME-HASH`, `NAME-HASH.2`, ...).

    Where a record, a prompt or a task's version changed since, a new one is begun and the older stays as it is. The
    samples that are still valid are taken over: they are not asked for twice.
    """
    number, latest = _latest(folder)
    following = folder.with_name(f"{folder.name}.{number + 1}")
    known = read_samples(latest) if (latest / FILE).is_file() else {}
    stamps = {item.key: item.stamp for item in items}
    if all(sample.stamp == stamps[key] for key, sample in known.items() if key in stamps):
        return latest
    partial = folder.with_name(f"{following.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    with closing(Journal(partial)) as journal:
        for key, sample in known.items():
            if stamps.get(key, sample.stamp) == sample.stamp:  # of other sets too: a later start asks for them
                journal.add(sample)
    return partial.rename(following)


def samples_there(folder: Path) -> dict[Key, SessionRecord]:
    """The samples in the latest generation of a run folder; nothing is written."""
    _, latest = _latest(folder)
    return read_samples(latest) if (latest / FILE).is_file() else {}


def _latest(folder: Path) -> tuple[int, Path]:
    """The number of the latest generation of a run folder, and its path."""
    number, latest = 1, folder
    while (following := folder.with_name(f"{folder.name}.{number + 1}")).exists():
        number, latest = number + 1, following
    return number, latest


def write_choice(folder: Path, settings: EvaluationSettings, items: Sequence[SampleRequest]) -> None:
    """Say what a run is and which samples this start asks for."""
    write_whole(folder / "settings.json", json.dumps(settings.identity(), indent=1))
    samples: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
    for item in items:
        samples[item.set].append((item.row.number, item.sample))
    chosen: dict[str, Any] = {"limit": settings.limit, "n": settings.n, "seed": settings.seed}
    chosen |= {"suite": settings.suite, "missing": list(settings.missing)}
    by_set = {name: sorted(samples[name]) for name in settings.sets}
    write_whole(folder / "chosen.json", json.dumps({**chosen, "samples": by_set}))
