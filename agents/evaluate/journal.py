"""Every finished sample is a line on disk at once: a run that dies at any moment loses nothing and asks nothing twice.

`samples.jsonl` only grows. A line that a crash cut short is dropped at the next start; of several lines for one sample
the last one counts.
"""

from __future__ import annotations

import fcntl
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from agents.errors import SoulError

Key = tuple[str, int, int]


class RunInUse(SoulError):
    """Another process is writing to this run's folder."""


class Journal:
    """The samples of one run.

    Raises:
        RunInUse: another process has it.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / "samples.jsonl"
        self._file = self.path.open("a+b")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._file.close()
            raise RunInUse(f"{folder}: another evaluation is writing here. Wait for it, or name another run.") from None
        self.samples: dict[Key, dict[str, Any]] = {}
        for sample in self._read():
            self.samples[_key(sample)] = sample

    def _read(self) -> Iterator[dict[str, Any]]:
        self._file.seek(0)
        whole = 0
        for line in self._file:
            if not line.endswith(b"\n"):
                break  # cut short by a crash
            whole += len(line)
            yield json.loads(line)
        self._file.truncate(whole)

    def add(self, sample: Mapping[str, Any]) -> None:
        """Keep a sample."""
        line = json.dumps(sample, ensure_ascii=False).encode("utf-8", "backslashreplace") + b"\n"
        self._file.write(line)
        self._file.flush()
        self.samples[_key(sample)] = dict(sample)

    def has(self, key: Key, stamp: str, retry_failed: bool) -> bool:
        """Whether this sample is there: of the same record and prompts, and valid where failures are asked again."""
        sample = self.samples.get(key)
        return sample is not None and sample["stamp"] == stamp and (sample["draft"]["valid"] or not retry_failed)

    def close(self) -> None:
        """Let others write."""
        self._file.close()


def _key(sample: Mapping[str, Any]) -> Key:
    return sample["set"], sample["number"], sample["sample"]
