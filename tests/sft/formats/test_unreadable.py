"""A file that cannot be read says what it seems to be."""

from __future__ import annotations

import gzip
import json
import zipfile
from pathlib import Path

import pyarrow as pa
import pytest

from sft.formats.names import BadShard
from tests.sft.corpus.corpora import opened, row, write

LINE = (json.dumps(row(0)) + "\n").encode()
FILES: dict[str, tuple[str, bytes, str]] = {
    "JSON lines called parquet": ("a.parquet", LINE, "not a readable parquet.*seems to be JSON lines: name it .jsonl"),
    "an array called parquet": ("a.parquet", b"[" + LINE + b"]", "seems to be a JSON array"),
    "gzip called parquet": ("a.parquet", gzip.compress(LINE), "seems to be gzip with JSON lines"),
    "an LFS pointer": ("a.parquet", b"version https://git-lfs.github.com/spec/v1\noid sha256:0", "Git LFS pointer"),
    "a web page": ("a.arrow", b"<!DOCTYPE html><html>", "seems to be a web page"),
    "an empty file": ("a.parquet", b"", "seems to be an empty file"),
    "a broken copy": ("a.parquet", bytes(5000), "seems to be zeros"),
    "no gzip": ("a.jsonl.gz", LINE, "not a readable json file with gzip.*seems to be JSON lines"),
    "gzip that is cut off": ("a.jsonl.gz", gzip.compress(LINE * 1000)[:200], "not a readable json file with gzip"),
    "zstd without its name": (
        "a.jsonl",
        pa.compress(LINE, "zstd", asbytes=True),
        "not JSON.*seems to be zstd with JSON",
    ),
    "a line that is no JSON": ("a.jsonl", LINE + b"{'a': 1}\n", "a.jsonl, row 1: the line is not JSON"),
    "an array that is cut off": ("a.json", b"[" + LINE + b", {", "row 1: the array does not end: the file is cut off"),
    "an array of texts": ("a.json", b'["a"]', "row 0: expected an object, got str"),
    "a table": ("a.csv", b"instruction,input,output\na,b,c\n", "not read; it seems to be a table as text"),
    "a pickle": ("a.pkl", b"\x80\x04\x95", "seems to be a Python pickle, which is never opened"),
    "no suffix": ("corpus", LINE, "files of this kind are not read; it seems to be JSON lines: name it .jsonl"),
    "compressed parquet": ("a.parquet.gz", gzip.compress(b"PAR1"), "seems to be gzip with a parquet file inside"),
    "another alphabet": ("a.txt", "é".encode("latin-1") * 10, "the text is not UTF-8"),
    "UTF-16": ("a.jsonl", "{}".encode("utf-16"), "seems to be UTF-16 text"),
    "no known columns": ("a.jsonl", b'{"q": 1, "a": {"b": 2}}\n', "column 'messages' is missing .it has: q, a, a.b."),
    "Alpaca without output": ("a.jsonl", b'{"instruction": "a"}\n', "column 'output' is missing"),
}


@pytest.mark.parametrize("case", FILES)
def test_an_unreadable_file(tmp_path: Path, case: str) -> None:
    name, content, says = FILES[case]
    file = tmp_path / "my corpus" / name
    file.parent.mkdir()
    file.write_bytes(content)
    with pytest.raises(BadShard, match=f"my corpus/(?s:.)*{says}"):
        opened(tmp_path, train_files=[str(file)])


def test_a_zip_archive(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.parquet", "w") as archive:
        archive.writestr("a.jsonl", LINE)
    with pytest.raises(BadShard, match="seems to be a zip archive"):
        opened(tmp_path, train_files=[str(tmp_path / "a.parquet")])


def test_folders(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "notes").touch()
    with pytest.raises(BadShard, match=r"holds no data files \(it has: notes\)"):
        opened(tmp_path, train_files=[str(tmp_path / "empty")])
    write(tmp_path / "mixed" / "a.parquet", [row(0)])
    (tmp_path / "mixed" / "a.jsonl").write_bytes(LINE)
    with pytest.raises(BadShard, match=r"several formats \(json, parquet\). Name the files"):
        opened(tmp_path, train_files=[str(tmp_path / "mixed")])
    (tmp_path / "saved").mkdir()
    (tmp_path / "saved" / "dataset_dict.json").write_text('{"splits": ["train"]}')
    with pytest.raises(BadShard, match="has the splits train, and none is called val or validation"):
        opened(tmp_path, train_files=[str(tmp_path / "mixed" / "a.jsonl")], val_files=[str(tmp_path / "saved")])
