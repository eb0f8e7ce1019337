"""Find files that look like keys, before they are published."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

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


def like_keys(folder: Path, files: Iterable[str]) -> Iterator[str]:
    """The files, by their paths in the folder, whose name or text looks like that of a key."""
    for name in files:
        path = folder / name
        if _NAME.fullmatch(path.name) or (_is_text(path) and _holds_key(path.read_text("utf-8", errors="replace"))):
            yield name


def _is_text(path: Path) -> bool:
    return path.suffix in _TEXT and path.name not in _VOCABULARIES and path.stat().st_size <= _READ_BYTES


def _holds_key(text: str) -> bool:
    """Whether a text holds something in the format of a key, or the value of a key in the environment."""
    return bool(LIKE_A_KEY.search(text) or _CONTENT.search(text)) or redact(text) != text
