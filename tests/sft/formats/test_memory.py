"""Memory does not grow with a file: it is read batch by batch."""

from __future__ import annotations

import gc
import tracemalloc
from pathlib import Path

import pytest

from sft.formats import reading
from tests.sft.corpus.corpora import row
from tests.sft.formats.files import WRITERS

BATCH = 1 << 15


def peak(file: Path) -> int:
    """Bytes that Python holds at most while a file is read."""
    gc.collect()  # what other tests have left would be collected, and logged, while we count
    tracemalloc.start()
    rows = sum(1 for _ in reading.read_records(file, reading.columns_of(file)))
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert rows > 20
    return most


@pytest.mark.parametrize("form", ["JSON lines", "JSON lines, zstd", "JSON array", "JSON array, gzip", "text"])
def test_a_file_is_never_in_memory(tmp_path: Path, form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("BATCH_BYTES", "PIECE_BYTES"):
        monkeypatch.setattr(reading, name, BATCH)

    def written(count: int) -> Path:
        if form != "text":
            return WRITERS[form](tmp_path / str(count), [row(number) for number in range(count)])
        (tmp_path / f"{count}.txt").write_text("It was the best of times.\n" * 8 * count)
        return tmp_path / f"{count}.txt"

    small, large = written(5_000), written(20_000)
    assert peak(large) < 1.1 * peak(small)
