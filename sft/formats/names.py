"""The format that a file's name stands for, and what a file that cannot be read seems to be by its content."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pyarrow as pa

from soul.errors import SoulError

Family = Literal["parquet", "arrow", "json", "text"]
Compression = Literal["gzip", "zstd"]

FAMILIES: dict[str, Family] = {
    ".parquet": "parquet",
    ".arrow": "arrow",
    ".jsonl": "json",
    ".ndjson": "json",
    ".json": "json",
    ".txt": "text",
    ".text": "text",
    ".md": "text",
}
COMPRESSIONS: dict[str, Compression] = {".gz": "gzip", ".zst": "zstd", ".zstd": "zstd"}
COMPRESSIBLE: tuple[Family, ...] = ("json", "text")  # parquet compresses its own columns
READABLE = ".parquet, .arrow, .jsonl, .ndjson, .json, .txt, .md; JSON and text also with .gz or .zst"

# The first bytes of a file -> what it is.
_MARKS: tuple[tuple[bytes, str], ...] = (
    (b"PAR1", "a parquet file"),
    (b"ARROW1", "an arrow file"),
    (b"\xff\xff\xff\xff", "an arrow stream"),
    (b"\x1f\x8b", "gzip"),
    (b"\x28\xb5\x2f\xfd", "zstd"),
    (b"PK\x03\x04", "a zip archive"),
    (b"BZh", "bzip2"),
    (b"\xfd7zXZ", "xz"),
    (b"version https://git-lfs", "a Git LFS pointer: run `git lfs pull` for the file itself"),
    (b"SQLite format 3", "an SQLite database"),
    (b"\x80\x04", "a Python pickle, which is never opened"),
    (b"\x89HDF", "an HDF5 file"),
    (b"\xff\xfe", "UTF-16 text: save it as UTF-8"),
    (b"\xfe\xff", "UTF-16 text: save it as UTF-8"),
)
_TAR = (257, b"ustar")
_BOM = b"\xef\xbb\xbf"


class BadShard(SoulError):
    """A file of the corpus cannot be read, or lacks the columns of every known layout."""


@dataclass(frozen=True)
class NamedFormat:
    """The format that a file's name stands for."""

    family: Family
    compression: Compression | None = None


def named_format(path: Path) -> NamedFormat | None:
    """The format that the suffixes of a name stand for; None if it is none that can be read."""
    suffix = path.suffix.lower()
    compression = COMPRESSIONS.get(suffix)
    if compression:
        suffix = Path(path.stem).suffix.lower()
    family = FAMILIES.get(suffix)
    if family is None or (compression and family not in COMPRESSIBLE):
        return None
    return NamedFormat(family, compression)


def seems_to_be(path: Path) -> str:
    """Guess from its first bytes what a file is: the end of a sentence that says why it cannot be read."""
    try:
        with open(path, "rb") as file:
            head = file.read(4096)
    except OSError as error:
        return f"it cannot be opened: {error.strerror}"
    what = _by_content(head)
    if what in ("gzip", "zstd"):
        try:
            with pa.input_stream(str(path), compression=what) as stream:
                what = f"{what} with {_by_content(stream.read(4096))} inside"
        except (pa.ArrowException, OSError):
            what = f"damaged {what}"
    return f"it seems to be {what}"


def _by_content(head: bytes) -> str:
    if not head:
        return "an empty file"
    for mark, what in _MARKS:
        if head.startswith(mark):
            return what
    if head[_TAR[0] :].startswith(_TAR[1]):
        return "a tar archive"
    if not any(head):
        return "zeros, as a broken copy leaves them"
    text = head.removeprefix(_BOM).lstrip()
    if text[:1] == b"{":
        return "JSON lines: name it .jsonl"
    if text[:1] == b"[":
        return "a JSON array: name it .json"
    if text[:15].lower().startswith((b"<!doctype html", b"<html")):
        return "a web page: the download got an error page or a login"
    return _text(head)


def _text(head: bytes) -> str:
    try:
        text = head[:-4].decode() if len(head) > 4 else head.decode()  # the cut may be inside of a character
    except UnicodeDecodeError as error:
        if error.start < len(head) - 8:
            return "binary data, or text that is not UTF-8"
        text = head[: error.start].decode()
    if "\0" in text:
        return "binary data"
    first = text.splitlines()[0] if text.splitlines() else ""
    if "\t" in first or first.count(",") > 1:
        return "a table as text (CSV or TSV): convert it to .jsonl or .parquet"
    return "plain text: name it .txt"
