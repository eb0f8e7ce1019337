"""The journal: every finished sample is written to disk at once, so a killed run loses none and pays for none twice.

`samples.jsonl` only grows. The next start drops a line that a crash cut short. If a sample has several lines, the last
one is its result, but all of them were paid for.
"""

import logging
import os
from pathlib import Path
from typing import NamedTuple

from soul.files.disk_writes import is_full, out_of_space
from soul.record import SessionRecord, read_records

logger = logging.getLogger(__name__)

FILE = "samples.jsonl"
Key = tuple[str, int, int]  # set, position of the row, number of the sample


class Journal:
    """The samples of one run. Only one process may write: hold the folder's lock (`soul.files.folder_lock`).

    Attributes:
        samples: the last line of each sample.
        paid_usd: what all lines cost that counts in the budget: judges, partners and environments, but not the policy.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.path = folder, folder / FILE
        self._file = self.path.open("ab", buffering=0)  # a buffer would write a failed line again when closed
        self.samples, self._length, self.paid_usd = _read(self.path)
        if partial := self._file.tell() - self._length:
            logger.warning("%s: dropped an incomplete last line (%d bytes)", self.path, partial)
            self._file.truncate(self._length)

    def add(self, sample: SessionRecord) -> None:
        """Append a sample. Raises OutOfSpace if the disk is full; the file then ends with the last complete line."""
        line = sample.to_line().encode("utf-8", "backslashreplace") + b"\n"
        try:
            written = 0
            while written < len(line):  # a disk that is nearly full writes only a part
                written += self._file.write(line[written:])
        except OSError as error:
            os.ftruncate(self._file.fileno(), self._length)
            if is_full(error):
                raise out_of_space(self.folder) from error
            raise
        self._length += len(line)
        self.samples[sample.key] = sample
        self.paid_usd += _paid_usd(sample)

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def read_samples(folder: Path) -> dict[Key, SessionRecord]:
    """The finished samples of a run, which another process may still be writing; empty without a journal.

    Raises:
        BadRecord: a line is not a session record: another program wrote to the file, or a disk failed.
    """
    return _read(folder / FILE).samples if (folder / FILE).is_file() else {}


class _Lines(NamedTuple):
    """The last line of each sample, the file's bytes without an incomplete last line, and what all lines cost."""

    samples: dict[Key, SessionRecord]
    length: int
    paid_usd: float


def _read(file: Path) -> _Lines:
    samples, length, paid = {}, 0, 0.0
    for line in read_records(file):
        samples[line.record.key], length = line.record, line.end
        paid += _paid_usd(line.record)
    return _Lines(samples, length, paid)


def _paid_usd(sample: SessionRecord) -> float:
    return sum(usage.cost_usd for role, usage in sample.usage.items() if role != "policy")
