"""A full disk, a second process: one paragraph each; the journal keeps whole lines, the other's run is untouched."""

import errno
import io
import json
import os
from pathlib import Path
from typing import Any

import pytest

from soul.evaluate import command as command_line
from soul.evaluate.run.journal import Journal
from soul.examples.command import write
from soul.examples.endpoint import answer
from soul.testing import FakeOpenAI

ROOM = 8000  # bytes that the disk still takes


class SmallDisk(io.FileIO):
    """A file on a disk with ROOM bytes: it takes a part of what does not fit, then nothing."""

    def write(self, data: Any, /) -> int:
        room = ROOM - os.fstat(self.fileno()).st_size
        if room <= 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        return super().write(bytes(data)[:room])


def on_small_disk(journal: Journal) -> Journal:
    journal._file.close()
    journal._file = SmallDisk(journal.path, "ab")
    return journal


@pytest.fixture
def evaluate(tmp_path: Path) -> Any:
    write(["hitom"], 6, tmp_path / "stories.parquet")

    def run(url: str) -> int:
        words = ["policy.model=m", f"policy.base_url={url}", "policy.api_key_env=none", "--out", str(tmp_path / "out")]
        return command_line.main([str(tmp_path / "stories.parquet"), *words])

    return run


def test_a_command_on_a_full_disk_ends_with_one_paragraph(
    evaluate: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    opened = Journal.__init__

    def small(self: Journal, folder: Path) -> None:
        opened(self, folder)
        on_small_disk(self)

    with FakeOpenAI(answer) as fake:
        with monkeypatch.context() as patched:
            patched.setattr(Journal, "__init__", small)
            assert evaluate(fake.url) == 1
        err = capsys.readouterr().err
        assert err.strip().startswith("OutOfSpace: no space left in ") and len(err.strip().splitlines()) == 1
        (journal,) = (tmp_path / "out").glob("*/samples.jsonl")
        kept = [json.loads(line)["number"] for line in journal.open()]
        assert 0 < len(kept) < 6 and not (journal.parent / "results.json").exists()
        assert evaluate(fake.url) == 0
        assert f"{len(kept)} samples are finished, {6 - len(kept)} to run" in capsys.readouterr().out
