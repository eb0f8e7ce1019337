"""Which parquet files a split consists of, and how often an epoch passes over them.

`TRAIN_FILES` and `VAL_FILES` hold paths or globs, each with an optional `:ratio`: `chat/*.parquet:2 tom.parquet:0.5`.
Where nothing is named, shards are found in a folder by the original's patterns.
"""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

from soul.errors import SoulError

# The first of these that matches anything names the shards of a folder.
PATTERNS = ("{split}_shard_*.parquet", "{split}-*.parquet", "{split}/*.parquet", "*{split}*.parquet")
VARIABLE = {"train": "TRAIN_FILES", "val": "VAL_FILES"}
_NUMBER = re.compile(r"\d+(\.\d+)?|\.\d+")


class BadSources(SoulError):
    """The files of a split cannot be found or are named wrongly."""


@dataclass(frozen=True)
class FileGroup:
    """Files that were named together.

    Attributes:
        name: the words that named them.
        files: the files, absolute, in order.
        ratio: passes over them in an epoch.
    """

    name: str
    files: tuple[Path, ...]
    ratio: Fraction = Fraction(1)


def find_files(named: str | Sequence[str] | None, folder: Path | None, split: str) -> list[FileGroup]:
    """The file groups of a split; none where the split is not named and the folder has no shards of it.

    Args:
        named: words of paths or globs, separated by blanks or as a list (whose items may hold blanks).
        folder: where to look if nothing is named.
        split: "train" or "val".

    Raises:
        BadSources: no file matches, a ratio cannot be read, a file is named twice.
    """
    words = named.split() if isinstance(named, str) else list(named or [])
    groups = [_group(word, split) for word in words] if words else _discover(folder, split)
    owner: dict[Path, str] = {}
    for group in groups:
        for file in group.files:
            if file in owner:
                raise BadSources(
                    f"{VARIABLE[split]}: {file} is named twice, by {owner[file]!r} and {group.name!r}. Name it once, "
                    "and say with :ratio how many passes over it an epoch makes."
                )
            owner[file] = group.name
    return groups


def _group(word: str, split: str) -> FileGroup:
    pattern, ratio = _split_ratio(word, split)
    found = [Path(file) for file in sorted(glob.glob(pattern, recursive=True))]
    folders = [path for path in found if path.is_dir()]
    if folders:
        raise BadSources(f"{VARIABLE[split]}: {folders[0]} is a folder. Name its files: {folders[0]}/*.parquet")
    if not found:
        raise BadSources(
            f"{VARIABLE[split]}: no shard matches {pattern!r} (looked from {Path.cwd()}). Check the path or the glob; "
            "a download may still be missing."
        )
    return FileGroup(word, tuple(_absolute(path) for path in found), ratio)


def _split_ratio(word: str, split: str) -> tuple[str, Fraction]:
    """Path and ratio of a word; a file whose own name ends like a ratio is taken as the file."""
    path, colon, tail = word.rpartition(":")
    if not colon or "/" in tail or tail.endswith(".parquet") or Path(word).exists():
        return word, Fraction(1)
    if not path or not _NUMBER.fullmatch(tail) or not Fraction(tail):
        raise BadSources(
            f"{VARIABLE[split]}: {word!r}: {tail!r} is no ratio. Write path:ratio with a number above 0, such as "
            "chat.parquet:2 (every row twice an epoch) or chat.parquet:0.5 (half of the rows), and leave files out "
            "that you do not want."
        )
    return path, Fraction(tail)


def _discover(folder: Path | None, split: str) -> list[FileGroup]:
    if folder is None:
        return []
    for pattern in (pattern.format(split=split) for pattern in PATTERNS):
        found = tuple(_absolute(path) for path in sorted(folder.glob(pattern)) if path.is_file())
        if found:
            return [FileGroup(str(folder / pattern), found)]
    return []


def _absolute(path: Path) -> Path:
    return Path(os.path.abspath(path))  # without `..`, but a link keeps its own name


def missing(folder: Path | None, split: str) -> BadSources:
    """The error for a split that has to exist and does not."""
    patterns = ", ".join(pattern.format(split=split) for pattern in PATTERNS)
    return BadSources(
        f"no shard of the split {split!r}: {VARIABLE[split]} is not set, and no file in {folder or 'DATA_DIR'} matches "
        f"{patterns}. Set {VARIABLE[split]} to parquet files, or DATA_DIR to the folder of the corpus."
    )
