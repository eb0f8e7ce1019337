"""The data files of a folder: shards by their names, or a dataset that `datasets` saved (`save_to_disk`)."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from sft.formats.reading import BadShard, family_of

# The shards of a split are the files that match the first of these patterns with any match. All but the last, which
# would find too much, are tried with all names of the split.
PATTERNS = ("{split}_shard_*", "{split}-*", "{split}/*", "data/{split}-*", "*{split}*")
SPLIT_NAMES = {"train": ("train",), "val": ("val", "validation", "valid", "dev")}
_ABOUT = ("dataset_info.json", "dataset_infos.json", "state.json", "dataset_dict.json")  # no rows
SAVED_SPLITS, SAVED = "dataset_dict.json", "state.json"


def shards_of_split(folder: Path, split: str) -> list[Path]:
    """The shards of a split in a folder that may hold several; empty if it has none."""
    if (folder / SAVED_SPLITS).is_file():
        splits = _read(folder / SAVED_SPLITS).get("splits", [])
        name = next((name for name in SPLIT_NAMES[split] if name in splits), None)
        return _saved(folder / name) if name else []
    if (folder / SAVED).is_file():
        return _saved(folder) if split == "train" else []
    return _matching(folder, split) or _data_files(folder.glob(PATTERNS[-1].format(split=split)), folder)


def files_of_folder(folder: Path, split: str) -> list[Path]:
    """The data files of a folder that is named for a split: the split's shards if it has several, otherwise all."""
    if (folder / SAVED).is_file():
        return _saved(folder)
    if (folder / SAVED_SPLITS).is_file():
        files = shards_of_split(folder, split)
    else:
        files = _matching(folder, split) or _data_files(folder.iterdir(), folder)
    if not files:
        shown = ", ".join(sorted(path.name for path in folder.iterdir())[:5])
        raise BadShard(f"{folder}: the folder holds no data files of {split} (it has: {shown}). Name the files.")
    return files


def _matching(folder: Path, split: str) -> list[Path]:
    for pattern in PATTERNS[:-1]:
        for name in SPLIT_NAMES[split]:
            if files := _data_files(folder.glob(pattern.format(split=name)), folder):
                return files
    return []


def _saved(folder: Path) -> list[Path]:
    """The arrow files of a saved dataset, in its own order: others may lie beside them from an earlier save."""
    return [folder / part["filename"] for part in _read(folder / SAVED).get("_data_files", [])]


def _read(path: Path) -> dict[str, Any]:
    try:
        content: dict[str, Any] = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise BadShard(f"{path}: cannot be read ({error}). Save the dataset again.") from error
    return content


def _data_files(paths: Iterable[Path], folder: Path) -> list[Path]:
    """The files among these that hold rows, sorted. Plain text only where nothing else is: a README is no corpus."""
    families = {path: family_of(path) for path in sorted(paths) if path.is_file() and path.name not in _ABOUT}
    kinds = {family for family in families.values() if family}
    kinds = kinds - {"text"} or kinds
    if len(kinds) > 1:
        raise BadShard(
            f"{folder}: the folder holds files of several formats ({', '.join(sorted(kinds))}). Name the files."
        )
    return [path for path, family in families.items() if family in kinds]
