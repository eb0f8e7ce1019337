"""The data files of a folder: shards by their names, or a dataset that `datasets` saved (`save_to_disk`)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from sft.formats.names import BadShard, named_format

# The shards of a split are the files that match the first of these patterns with any match. All but the last, which
# would find too much, are tried with all names of the split.
PATTERNS = ("{split}_shard_*", "{split}-*", "{split}/*", "data/{split}-*", "*{split}*")
SPLIT_NAMES = {"train": ("train",), "val": ("val", "validation", "valid", "dev")}
_ABOUT = ("dataset_info.json", "dataset_infos.json", "state.json", "dataset_dict.json")  # no rows
SAVED_SPLITS, SAVED = "dataset_dict.json", "state.json"


def shards_of_split(folder: Path, split: str) -> list[Path]:
    """The shards of a split in a folder that may hold several; empty if it has none."""
    if (folder / SAVED_SPLITS).is_file():
        return _saved_split(folder, split)
    if (folder / SAVED).is_file():
        return _saved(folder) if split == "train" else []
    names = SPLIT_NAMES[split]
    known = [pattern.format(split=name) for pattern in PATTERNS[:-1] for name in names]
    for pattern in [*known, PATTERNS[-1].format(split=split)]:
        if files := _data_files(folder.glob(pattern), folder):
            return files
    return []


def files_of_folder(folder: Path, split: str) -> list[Path]:
    """The data files of a folder that is named for a split: the split's shards if it has several, otherwise all.

    Raises:
        BadShard: there are none.
    """
    if (folder / SAVED).is_file():
        return _saved(folder)
    if (folder / SAVED_SPLITS).is_file():
        files = _saved_split(folder, split)
        if not files:
            raise BadShard(
                f"{folder}: the saved dataset has the splits {', '.join(_read(folder / SAVED_SPLITS)['splits'])}, and "
                f"none is called {' or '.join(SPLIT_NAMES[split])}. Name the split's own folder."
            )
        return files
    for name in SPLIT_NAMES[split]:
        for pattern in PATTERNS[:-1]:
            if files := _data_files(folder.glob(pattern.format(split=name)), folder):
                return files
    files = _data_files(folder.iterdir(), folder)
    if not files:
        names = sorted(path.name for path in folder.iterdir())
        shown = ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")
        raise BadShard(f"{folder}: the folder holds no data files (it has: {shown or 'nothing'}). Name the files.")
    return files


def _saved_split(folder: Path, split: str) -> list[Path]:
    splits = _read(folder / SAVED_SPLITS).get("splits", [])
    name = next((name for name in SPLIT_NAMES[split] if name in splits), None)
    return _saved(folder / name) if name else []


def _saved(folder: Path) -> list[Path]:
    """The arrow files of a saved dataset, in its own order: others may lie beside them from an earlier save."""
    return [folder / part["filename"] for part in _read(folder / SAVED).get("_data_files", [])]


def _read(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise BadShard(f"{path}: cannot be read ({error}). Save the dataset again.") from error
    if not isinstance(content, dict):
        raise BadShard(f"{path}: not as `datasets` writes it. Save the dataset again.")
    return content


def _data_files(paths: Any, folder: Path) -> list[Path]:
    """The files among these that hold rows, sorted. Plain text only where nothing else is: a README is no corpus."""
    formats = {path: named_format(path) for path in sorted(paths) if path.is_file() and path.name not in _ABOUT}
    families = {named.family for named in formats.values() if named}
    families = families - {"text"} or families
    if len(families) > 1:
        raise BadShard(
            f"{folder}: the folder holds files of several formats ({', '.join(sorted(families))}). Name the files."
        )
    return [path for path, named in formats.items() if named and named.family in families]
