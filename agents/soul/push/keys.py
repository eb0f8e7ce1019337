"""Find files that look like keys or hold one, before they are published: text files and the rows of parquet files.

An address with a password in it counts as a key.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from soul.cli.redaction import LIKE_A_KEY, redact

# Names under which people keep keys.
_NAME = re.compile(
    r"\.env(\..*)?|\.netrc|\.?credentials?(\..*)?|id_(rsa|dsa|ecdsa|ed25519).*|(.*[._-])?secrets?(\..*)?|.*\.(pem|key|p12|pfx)"
    r"|(.*[._-])?(api[_-]?key|token)s?(\.txt)?",
    re.IGNORECASE,
)
# Besides the keys of endpoints: tokens of the hub, of AWS, of GitHub, and private keys.
_CONTENT = re.compile(
    r"\bhf_[A-Za-z0-9]{20,}|\bAKIA[0-9A-Z]{16}\b|\bgh[pousr]_[A-Za-z0-9]{30,}|-----BEGIN [A-Z ]*PRIVATE KEY-----"
)
_TEXT = {"", ".cfg", ".ini", ".jinja", ".json", ".jsonl", ".log", ".md", ".py", ".sh", ".toml", ".txt", ".yaml", ".yml"}
_VOCABULARIES = {"tokenizer.json", "vocab.json", "merges.txt"}  # any text may be a token
_ROWS = 500  # rows of a parquet file in memory at once


def like_keys(folder: Path, files: Iterable[str]) -> Mapping[str, str]:
    """The files that look like a key or hold one: path in the folder -> "name", "line 7" or "row 3" (from 0)."""
    places = {name: _place_of_key(folder / name) for name in files}
    return {name: place for name, place in places.items() if place is not None}


def _place_of_key(path: Path) -> str | None:
    if _NAME.fullmatch(path.name):
        return "name"
    return next((place for place, text in _texts(path) if _holds_key(text)), None)


def _texts(path: Path) -> Iterator[tuple[str, str]]:
    """The lines of a text file or the rows of a parquet file, each with its place; none of other files."""
    if path.suffix == ".parquet":
        with pq.ParquetFile(path) as file:
            rows = (row for batch in file.iter_batches(_ROWS) for row in batch.to_pylist())
            yield from ((f"row {number}", "\n".join(_strings(row))) for number, row in enumerate(rows))
    elif path.suffix in _TEXT and path.name not in _VOCABULARIES:
        with path.open(encoding="utf-8", errors="replace") as text:
            yield from ((f"line {number}", line) for number, line in enumerate(text, start=1))


def _strings(value: Any) -> Iterator[str]:
    """All texts in a row, with the names of its fields."""
    if isinstance(value, dict):
        value = [*value, *value.values()]
    if isinstance(value, list):
        for part in value:
            yield from _strings(part)
    elif isinstance(value, str):
        yield value


def _holds_key(text: str) -> bool:
    """True if a text has the format of a key, or holds a password in an address or a key of the environment."""
    return bool(LIKE_A_KEY.search(text) or _CONTENT.search(text)) or redact(text) != text
