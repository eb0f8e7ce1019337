"""Find files that look like keys or hold one, before they are published.

Text files are read, and the rows of parquet files. An address with a password in it counts as a key.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
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
_READ_BYTES = 8 * 2**20  # larger files are no settings


_ROWS = 500  # rows of a parquet file in memory at once


def like_keys(folder: Path, files: Iterable[str]) -> Iterator[str]:
    """The files, by their paths in the folder, that look like a key or hold one; of a parquet file, the row."""
    for name in files:
        path = folder / name
        if _NAME.fullmatch(path.name) or (_is_text(path) and _holds_key(path.read_text("utf-8", errors="replace"))):
            yield name
        elif path.suffix == ".parquet" and (row := _row_with_key(path)) is not None:
            yield f"{name}, row {row}"


def _is_text(path: Path) -> bool:
    return path.suffix in _TEXT and path.name not in _VOCABULARIES and path.stat().st_size <= _READ_BYTES


def _row_with_key(path: Path) -> int | None:
    """The first row of a parquet file that holds a key, counted from 0."""
    number = 0
    with pq.ParquetFile(path) as file:
        for batch in file.iter_batches(_ROWS):
            for row in batch.to_pylist():
                if _holds_key("\n".join(_texts(row))):
                    return number
                number += 1
    return None


def _texts(value: Any) -> Iterator[str]:
    """All texts in a row, with the names of its fields."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for name, part in value.items():
            yield name
            yield from _texts(part)
    elif isinstance(value, list):
        for part in value:
            yield from _texts(part)


def _holds_key(text: str) -> bool:
    """Whether a text holds something in the format of a key, the value of a key in the environment, or a password."""
    return bool(LIKE_A_KEY.search(text) or _CONTENT.search(text)) or redact(text) != text
