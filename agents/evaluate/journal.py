"""Every finished sample is a line on disk at once: a run that dies at any moment loses nothing and asks nothing twice.

`samples.jsonl` only grows. A line that a crash cut short is dropped at the next start; of several lines for one sample
the last one counts.
"""

from __future__ import annotations

import fcntl
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

from agents.errors import SoulError

FILE = "samples.jsonl"
Key = tuple[str, int, int]  # set, row of its file, number of the sample


class RunInUse(SoulError):
    """Another process is writing to this run's folder."""


class BadJournal(SoulError):
    """A line of a journal is no sample: something else wrote into it, or a disk failed."""


class Journal:
    """The samples of one run.

    Raises:
        RunInUse: another process has it.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / FILE
        self._file = self.path.open("a+b")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._file.close()
            raise RunInUse(f"{folder}: another evaluation is writing here. Wait for it, or name another run.") from None
        self.samples, whole = _read(self._file)
        self._file.truncate(whole)

    def add(self, sample: Mapping[str, Any]) -> None:
        """Keep a sample."""
        line = json.dumps(sample, ensure_ascii=False).encode("utf-8", "backslashreplace") + b"\n"
        self._file.write(line)
        self._file.flush()
        self.samples[_key(sample)] = dict(sample)

    def close(self) -> None:
        """Let others write."""
        self._file.close()


def holds(samples: Mapping[Key, Mapping[str, Any]], key: Key, stamp: str, retry_failed: bool) -> bool:
    """Whether a sample with this stamp is among these; a failed one only where failures are not taken again."""
    sample = samples.get(key)
    return sample is not None and sample["stamp"] == stamp and (sample["draft"]["valid"] or not retry_failed)


def read_samples(folder: Path) -> dict[Key, dict[str, Any]]:
    """The samples of a run that others may be writing: as far as it has come, nothing is changed."""
    with (folder / FILE).open("rb") as file:
        return _read(file)[0]


def _read(file: BinaryIO) -> tuple[dict[Key, dict[str, Any]], int]:
    """The samples, and the length of the file without a line that was cut short by a crash."""
    file.seek(0)
    samples, whole = {}, 0
    for number, line in enumerate(file, start=1):
        if not line.endswith(b"\n"):
            break
        whole += len(line)
        try:
            sample = json.loads(line)
            samples[_key(sample)] = sample
        except (ValueError, KeyError, TypeError) as error:
            raise BadJournal(
                f"{file.name}: line {number} is no sample ({error}). Remove the line; the same command takes "
                "the sample again."
            ) from None
    return samples, whole


def _key(sample: Mapping[str, Any]) -> Key:
    return sample["set"], sample["number"], sample["sample"]
