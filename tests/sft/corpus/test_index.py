"""The row index is read from the files once, and from its cache for as long as that is true."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sft.corpus import index as row_index
from sft.corpus.index import Shard, read_index
from sft.formats.names import BadShard
from tests.sft.corpus.corpora import row, write


@pytest.fixture
def footers(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The files that are described, as they are."""
    found: list[str] = []
    real = row_index._index

    def counted(file: Path) -> Shard:
        found.append(file.name)
        return real(file)

    monkeypatch.setattr(row_index, "_index", counted)
    return found


def test_an_index_is_read_once_and_kept_true(tmp_path: Path, footers: list[str]) -> None:
    files = [write(tmp_path / f"{name}.parquet", [row(number) for number in range(10)], group=4) for name in "ab"]
    first = read_index(files, tmp_path / "cache")
    assert [(shard.rows, shard.contents.groups, shard.layout) for shard in first] == [(10, (4, 4, 2), "messages")] * 2
    assert read_index(files, tmp_path / "cache") == first
    assert sorted(footers) == ["a.parquet", "b.parquet"]
    os.utime(files[1], ns=(0, 0))  # same size, another time of change
    write(files[0], [row(number) for number in range(3)])
    again = read_index(files[::-1], tmp_path / "cache")
    assert sorted(footers[2:]) == ["a.parquet", "b.parquet"]
    assert [shard.rows for shard in again] == [10, 3]


def test_the_cache_serves_other_sets_of_files(tmp_path: Path, footers: list[str]) -> None:
    files = [write(tmp_path / f"{name}.parquet", [row(0)]) for name in "abc"]
    read_index(files[:2], tmp_path / "cache")
    read_index(files[2:], tmp_path / "cache")
    read_index(files, tmp_path / "cache")
    assert sorted(footers) == ["a.parquet", "b.parquet", "c.parquet"]


@pytest.mark.parametrize(
    "content", ["", "{", '{"version": 0}', '{"version": 1}', '{"version": 1, "shards": {"a": 3}}', "[]"]
)
def test_a_damaged_cache_is_made_again(tmp_path: Path, footers: list[str], content: str) -> None:
    file = write(tmp_path / "a.parquet", [row(0)])
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / row_index.FILE).write_text(content)
    assert read_index([file], tmp_path / "cache")[0].rows == 1
    assert footers == ["a.parquet"]


def test_layouts(tmp_path: Path) -> None:
    chat = row(0)["messages"]
    files = [
        write(tmp_path / "a.parquet", [{"extra_info": {"messages": chat, "index": 0}, "data_source": "x", "junk": 1}]),
        write(tmp_path / "b.parquet", [{"prompt": chat, "response": "x", "train_role": "human"}]),
    ]
    first, second = read_index(files, tmp_path / "cache")
    assert (first.layout, first.wanted()) == ("extra_info.messages", ["extra_info.messages", "data_source"])
    assert (second.layout, second.wanted()) == ("prompt_response", ["prompt", "response", "train_role"])


def test_a_file_that_is_gone(tmp_path: Path) -> None:
    with pytest.raises(BadShard, match="gone.parquet: cannot be read"):
        read_index([tmp_path / "gone.parquet"], tmp_path / "cache")
