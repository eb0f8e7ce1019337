"""Memory does not grow with a file: it is described and read block by block."""

from __future__ import annotations

import gc
import tracemalloc
from pathlib import Path

import pytest

from sft.formats import byte_blocks, json_rows, plain_text
from sft.formats.reading import describe, read_batches
from tests.sft.corpus.corpora import row
from tests.sft.formats.files import WRITERS

BLOCK = 1 << 15


def peak(file: Path) -> int:
    """Bytes that Python holds at most while a file is described and read."""
    gc.collect()  # what other tests have left would be collected, and logged, while we count
    tracemalloc.start()
    contents = describe(file)
    groups = range(len(contents.groups))
    rows = sum(len(batch.records(0, batch.rows)) for batch in read_batches(file, contents, groups, contents.columns))
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert rows == contents.rows and len(groups) > 20
    return most


@pytest.mark.parametrize("form", ["JSON lines", "JSON lines, zstd", "JSON array", "JSON array, gzip", "text"])
def test_a_file_is_never_in_memory(tmp_path: Path, form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for module, name in ((byte_blocks, "BLOCK_BYTES"), (json_rows, "BLOCK_BYTES"), (plain_text, "PIECE_BYTES")):
        monkeypatch.setattr(module, name, BLOCK)

    def written(count: int) -> Path:
        if form != "text":
            return WRITERS[form](tmp_path / str(count), [row(number) for number in range(count)])
        (tmp_path / f"{count}.txt").write_text("It was the best of times.\n" * 8 * count)
        return tmp_path / f"{count}.txt"

    small, large = written(5_000), written(20_000)
    assert peak(large) < 1.1 * peak(small)
