"""Find files that look like keys, before they are published or uploaded."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

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
_RECORDS = {".jsonl", ".log"}  # texts of any length; of other kinds a large file is no setting
_READ_BYTES = 8 * 2**20


def like_keys(folder: Path, files: Iterable[str]) -> Iterator[str]:
    """The files, by their paths in the folder, whose name or content looks like that of a key."""
    for name in files:
        path = folder / name
        if _NAME.fullmatch(path.name) or any(_holds_key(text) for text in _texts(path)):
            yield name


def _texts(path: Path) -> Iterator[str]:
    """The lines of a text file, or the rows of a parquet file; none of other files."""
    if path.suffix == ".parquet":
        for batch in pq.ParquetFile(path).iter_batches():
            yield from map(str, batch.to_pylist())
    elif path.suffix in _TEXT and path.name not in _VOCABULARIES:
        if path.suffix in _RECORDS or path.stat().st_size <= _READ_BYTES:
            with path.open(encoding="utf-8", errors="replace") as lines:
                yield from lines


def _holds_key(text: str) -> bool:
    """Whether a text holds something in the format of a key, an address with a password, or the value of a key in the
    environment."""
    return bool(LIKE_A_KEY.search(text) or _CONTENT.search(text)) or redact(text) != text
