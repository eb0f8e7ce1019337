"""Which parquet files a split consists of, and how often an epoch passes over them.

`TRAIN_FILES` and `VAL_FILES` hold paths or globs, each with an optional `:ratio`: `chat/*.parquet:2 tom.parquet:0.5`.
If no file is named, the shards are looked up in a folder by file name (`PATTERNS`).
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

# The shards of a folder are the files that match the first of these patterns with any match.
PATTERNS = ("{split}_shard_*.parquet", "{split}-*.parquet", "{split}/*.parquet", "*{split}*.parquet")
VARIABLE = {"train": "TRAIN_FILES", "val": "VAL_FILES"}
_NUMBER = re.compile(r"\d+(\.\d+)?|\.\d+")


class BadSources(SoulError):
    """The files of a split do not exist, or their names are wrong."""


@dataclass(frozen=True)
class FileGroup:
    """Files that one path or glob names.

    Attributes:
        name: the path or glob, with its ratio.
        files: the files, absolute, in order.
        ratio: passes over the files per epoch.
    """

    name: str
    files: tuple[Path, ...]
    ratio: Fraction = Fraction(1)


def find_files(named: str | Sequence[str] | None, folder: Path | None, split: str) -> list[FileGroup]:
    """The file groups of a split; empty if no file is named and the folder has no shards of the split.

    Args:
        named: paths or globs, space-separated or as a list (whose items may contain spaces).
        folder: where to look if no file is named.
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
                    "and set the passes per epoch with :ratio."
                )
            owner[file] = group.name
    return groups


def _group(word: str, split: str) -> FileGroup:
    pattern, ratio = _split_ratio(word, split)
    paths = [Path(file) for file in sorted(glob.glob(pattern, recursive=True))]
    folders = [path for path in paths if path.is_dir()]
    if folders:
        raise BadSources(f"{VARIABLE[split]}: {folders[0]} is a folder. Name its files: {folders[0]}/*.parquet")
    if not paths:
        raise BadSources(
            f"{VARIABLE[split]}: no shard matches {pattern!r} (in {Path.cwd()}). Check the path or the glob; a "
            "download may still be missing."
        )
    return FileGroup(word, tuple(_absolute(path) for path in paths), ratio)


def _split_ratio(word: str, split: str) -> tuple[str, Fraction]:
    """Path and ratio of a word. If a file of that whole name exists, the word is its path."""
    path, colon, tail = word.rpartition(":")
    if not colon or "/" in tail or tail.endswith(".parquet") or Path(word).exists():
        return word, Fraction(1)
    if not path or not _NUMBER.fullmatch(tail) or not Fraction(tail):
        raise BadSources(
            f"{VARIABLE[split]}: {word!r}: {tail!r} is not a ratio. Write path:ratio with a number above 0, such as "
            "chat.parquet:2 (every row twice per epoch) or chat.parquet:0.5 (half of the rows). Leave out files that "
            "you do not want."
        )
    return path, Fraction(tail)


def _discover(folder: Path | None, split: str) -> list[FileGroup]:
    if folder is None:
        return []
    for pattern in (pattern.format(split=split) for pattern in PATTERNS):
        files = tuple(_absolute(path) for path in sorted(folder.glob(pattern)) if path.is_file())
        if files:
            return [FileGroup(str(folder / pattern), files)]
    return []


def _absolute(path: Path) -> Path:
    return Path(os.path.abspath(path))  # removes `..`, but keeps links


def no_files(folder: Path | None, split: str) -> BadSources:
    """The error for a split that must exist and has no files."""
    patterns = ", ".join(pattern.format(split=split) for pattern in PATTERNS)
    return BadSources(
        f"no shard of the split {split!r}: {VARIABLE[split]} is not set, and no file in {folder or 'DATA_DIR'} matches "
        f"{patterns}. Set {VARIABLE[split]} to parquet files, or DATA_DIR to the folder of the corpus."
    )
