"""Every finished sample is a line on disk at once: a run that dies at any moment loses nothing and asks nothing twice.

`samples.jsonl` only grows. A line that a crash cut short is dropped at the next start; of several lines for one sample
the last one counts.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

from soul.errors import INFRASTRUCTURE, SoulError
from soul.files.disk_space import is_full, out_of_space

FILE = "samples.jsonl"
Key = tuple[str, int, int]  # set, row of its file, number of the sample


class BadJournal(SoulError):
    """A line of a journal is no sample: something else wrote into it, or a disk failed."""


class Journal:
    """The samples of one run. Hold the lock of its folder (`soul.files.folder_lock`) meanwhile: one process writes."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / FILE
        self._file = self.path.open("ab", buffering=0)  # a buffer would write a failed line again when it is closed
        with self.path.open("rb") as file:
            self.samples, self._length = _read(file)
        self._file.truncate(self._length)

    def add(self, sample: Mapping[str, Any]) -> None:
        """Keep a sample.

        Raises:
            OutOfSpace: the disk is full. The file ends with the last whole line.
        """
        line = json.dumps(sample, ensure_ascii=False).encode("utf-8", "backslashreplace") + b"\n"
        try:
            written = 0
            while written < len(line):  # a disk that is nearly full takes a part of it
                written += self._file.write(line[written:])
        except OSError as error:
            os.ftruncate(self._file.fileno(), self._length)
            if is_full(error):
                raise out_of_space(self.path.parent) from error
            raise
        self._length += len(line)
        self.samples[_key(sample)] = dict(sample)

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def holds(samples: Mapping[Key, Mapping[str, Any]], key: Key, stamp: str, retry_failed: bool) -> bool:
    """Whether a sample with this stamp is among these and need not be taken again.

    Args:
        retry_failed: take every failed sample again, not only those that infrastructure failed (`INFRASTRUCTURE`).
    """
    sample = samples.get(key)
    if sample is None or sample["stamp"] != stamp:
        return False
    return bool(sample["draft"]["valid"]) or not (retry_failed or failed_by_infrastructure(sample))


def failed_by_infrastructure(sample: Mapping[str, Any]) -> bool:
    """Whether a sample has no verdict for a reason that lies in no answer: a time-out, a server error, a budget, ..."""
    failure = sample["draft"]["failure"]
    return failure is not None and failure["cause"] in INFRASTRUCTURE


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
