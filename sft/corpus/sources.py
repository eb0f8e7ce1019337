"""The settings of a corpus, the files of a split, and how often an epoch passes over them.

`TRAIN_FILES` and `VAL_FILES` hold paths, folders or globs, each with an optional `:ratio`: `chat/*.jsonl:2 books:0.5`.
If no file is named, the shards are looked up in a folder by file name.
"""

import glob
import os
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from sft.encode.sequence import Overlong
from sft.encode.train_roles import Role
from sft.formats.reading import BadShard, family_of
from soul.errors import SoulError


class SftDataSettings(BaseModel):
    """The data of a supervised training. sft/config/sft.yaml describes each key."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    cache_dir: Path  # token ids; you may delete it between runs
    dir: Path | None = None  # folder of the shards, if train_files or val_files name none
    train_files: str | Sequence[str] | None = None
    val_files: str | Sequence[str] | None = None
    max_prompt_length: int = Field(default=16384, gt=0)
    max_response_length: int = Field(default=8192, gt=0)
    overlong: Overlong = "drop"
    bad_rows: Literal["error", "drop"] = "error"  # empty trained turns, rows that the chat template refuses
    default_train_role: Role | None = None
    apply_chat_template_kwargs: Mapping[str, Any] = Field(default_factory=dict)
    seed: int = 42

    @property
    def max_length(self) -> int:
        """Tokens that a sequence may have. Only the sum of prompt and response is limited."""
        return self.max_prompt_length + self.max_response_length

    def files(self, split: str) -> str | Sequence[str] | None:
        """The setting that names the files of a split."""
        return self.train_files if split == "train" else self.val_files


VARIABLE = {"train": "TRAIN_FILES", "val": "VAL_FILES"}
_NUMBER = re.compile(r"\d+(\.\d+)?|\.\d+")


class BadSources(SoulError):
    """The files of a split do not exist, or their names are wrong."""


@dataclass(frozen=True)
class FileGroup:
    """Files that one path, folder or glob names."""

    name: str  # the path, folder or glob, with its ratio
    files: tuple[Path, ...]  # absolute, in order
    ratio: Fraction = Fraction(1)  # passes over the files per epoch


def find_files(named: str | Sequence[str] | None, folder: Path | None, split: str) -> list[FileGroup]:
    """The file groups of a split; empty if no file is named and the folder has no shards of the split.

    Args:
        named: paths, folders or globs: space-separated (one that contains spaces in quotes), or as a list.
        folder: where to look if no file is named.
        split: "train" or "val".
    """
    words = _words(named, split) if isinstance(named, str) else list(named or [])
    groups = [_group(word, split) for word in words]
    if not words and folder and (shards := _shards(folder, split, f"*{split}*")):
        groups = [FileGroup(str(folder), tuple(map(_absolute, shards)))]
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


def _words(named: str, split: str) -> list[str]:
    if Path(named).exists():  # a single path with spaces
        return [named]
    try:
        return shlex.split(named)
    except ValueError as error:
        raise BadSources(f"{VARIABLE[split]}: {named!r}: {error}. Close the quote.") from error


def _group(word: str, split: str) -> FileGroup:
    pattern, ratio = _split_ratio(word, split)
    # A path that exists is taken as it is: its name may hold the characters of a glob.
    found = [pattern] if Path(pattern).exists() else sorted(glob.glob(pattern, recursive=True))
    if not found:
        raise BadSources(
            f"{VARIABLE[split]}: no file matches {pattern!r} (in {Path.cwd()}). Check the path or the glob; a "
            "download may still be missing."
        )
    files: list[Path] = []
    for path in map(Path, found):
        files += _of_folder(path, split) if path.is_dir() else [path]
    return FileGroup(word, tuple(_absolute(path) for path in files), ratio)


def _split_ratio(word: str, split: str) -> tuple[str, Fraction]:
    """Path and ratio of a word. If a file of that whole name exists, the word is its path."""
    path, colon, tail = word.rpartition(":")
    if not colon or "/" in tail or family_of(Path(tail)) or Path(word).exists():
        return word, Fraction(1)
    if not path or not _NUMBER.fullmatch(tail) or not Fraction(tail):
        raise BadSources(
            f"{VARIABLE[split]}: {word!r}: {tail!r} is not a ratio. Write path:ratio with a number above 0, such as "
            "chat.parquet:2 (every row twice per epoch) or chat.parquet:0.5 (half of the rows). Leave out files that "
            "you do not want."
        )
    return path, Fraction(tail)


def _absolute(path: Path) -> Path:
    return Path(os.path.abspath(path))  # removes `..`, but keeps links


def no_files(folder: Path | None, split: str) -> BadSources:
    """The error for a split that must exist and has no files."""
    patterns = ", ".join(pattern.format(split=split) for pattern in (*PATTERNS, "*{split}*"))
    return BadSources(
        f"no shard of the split {split!r}: {VARIABLE[split]} is not set, and no data file in {folder or 'DATA_DIR'} "
        f"matches {patterns}. Set {VARIABLE[split]} to files or folders, or DATA_DIR to the folder of the corpus."
    )


PATTERNS = ("{split}_shard_*", "{split}-*", "{split}/*", "data/{split}-*")
SPLIT_NAMES = {"train": ("train",), "val": ("val", "validation", "valid", "dev")}
_ABOUT = ("dataset_info.json", "dataset_infos.json", "state.json", "dataset_dict.json")  # no rows


def _shards(folder: Path, split: str, otherwise: str) -> list[Path]:
    """The files that match the first of the patterns with any match, with any name of the split; else `otherwise`."""
    patterns = [pattern.format(split=name) for pattern in PATTERNS for name in SPLIT_NAMES[split]]
    found = (_data_files(folder.glob(pattern), folder) for pattern in (*patterns, otherwise))
    return next(filter(None, found), [])


def _of_folder(folder: Path, split: str) -> list[Path]:
    """The data files of a folder that is named for a split: the split's shards if it has several, otherwise all."""
    if files := _shards(folder, split, "*"):
        return files
    shown = ", ".join(sorted(path.name for path in folder.iterdir())[:5])
    raise BadShard(f"{folder}: the folder holds no data files of {split} (it has: {shown}). Name the files.")


def _data_files(paths: Iterable[Path], folder: Path) -> list[Path]:
    """The files among these that hold rows, sorted."""
    families = {path: family_of(path) for path in sorted(paths) if path.is_file() and path.name not in _ABOUT}
    kinds = {family for family in families.values() if family}
    if len(kinds) > 1:
        raise BadShard(
            f"{folder}: the folder holds files of several formats ({', '.join(sorted(kinds))}). Name the files."
        )
    return [path for path, family in families.items() if family in kinds]
