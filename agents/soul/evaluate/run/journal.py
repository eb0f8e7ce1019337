"""Every finished sample is a line on disk at once: a run that dies at any moment loses nothing and asks nothing twice.

`samples.jsonl` only grows. A line that a crash cut short is dropped at the next start; of several lines for one sample
the last one counts.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from soul.errors import INFRASTRUCTURE
from soul.files.disk_space import is_full, out_of_space
from soul.record import SessionRecord, read_records

FILE = "samples.jsonl"
Key = tuple[str, int, int]  # set, row of its file, number of the sample


class Journal:
    """The samples of one run. Hold the lock of its folder (`soul.files.folder_lock`) meanwhile: one process writes."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / FILE
        self._file = self.path.open("ab", buffering=0)  # a buffer would write a failed line again when it is closed
        self.samples, self._length = _read(self.path)
        self._file.truncate(self._length)

    def add(self, sample: SessionRecord) -> None:
        """Keep a sample.

        Raises:
            OutOfSpace: the disk is full. The file ends with the last whole line.
        """
        line = sample.to_line().encode("utf-8", "backslashreplace") + b"\n"
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
        self.samples[sample.key] = sample

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def holds(samples: Mapping[Key, SessionRecord], key: Key, stamp: str, retry_failed: bool) -> bool:
    """Whether a sample with this stamp is among these and need not be taken again.

    Args:
        retry_failed: take every failed sample again, not only those that infrastructure failed (`INFRASTRUCTURE`).
    """
    sample = samples.get(key)
    if sample is None or sample.stamp != stamp:
        return False
    return sample.draft.valid or not (retry_failed or failed_by_infrastructure(sample))


def failed_by_infrastructure(sample: SessionRecord) -> bool:
    """Whether a sample has no verdict for a reason that lies in no answer: a time-out, a server error, a budget, ..."""
    return sample.draft.failure is not None and sample.draft.failure.cause in INFRASTRUCTURE


def read_samples(folder: Path) -> dict[Key, SessionRecord]:
    """The samples of a run that others may be writing: as far as it has come, nothing is changed.

    Raises:
        BadRecord: a line is no sample: something else wrote into the file, or a disk failed.
    """
    return _read(folder / FILE)[0]


def _read(file: Path) -> tuple[dict[Key, SessionRecord], int]:
    """The samples, and the length of the file without a line that was cut short by a crash."""
    samples, length = {}, 0
    for line in read_records(file):
        samples[line.record.key], length = line.record, line.end
    return samples, length
