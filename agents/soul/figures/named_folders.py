"""The arguments `NAME=FOLDER,FOLDER`: several folders of one name are seeds."""

from __future__ import annotations

import re
from argparse import ArgumentTypeError
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from soul.cli.arguments import existing_folder
from soul.errors import BadSettings


class NamedFolders(NamedTuple):
    """A name and its folders."""

    name: str
    folders: tuple[Path, ...]


def named_folders(text: str) -> NamedFolders:
    """The type of an argument NAME=FOLDER,FOLDER."""
    name, equals, folders = text.partition("=")
    if not (name.strip() and equals and folders.strip(",")):
        raise ArgumentTypeError(f"{text!r}: write NAME=FOLDER or NAME=FOLDER,FOLDER, such as ditto=outputs/a,outputs/b")
    return NamedFolders(name.strip(), tuple(existing_folder(part) for part in folders.split(",") if part))


def file_name(name: str) -> str:
    """A name, or that of a task, as a part of a file's name."""
    return re.sub(r"[^\w-]+", "_", name)


def by_name(option: str, given: Sequence[NamedFolders]) -> dict[str, tuple[Path, ...]]:
    """Name -> its folders.

    Raises:
        BadSettings: a name or a folder is given twice, or two names would share their files.
    """
    chosen: dict[str, tuple[Path, ...]] = {}
    places: dict[Path, str] = {}
    for name, folders in given:
        if name in chosen:
            raise BadSettings(f"{option}: {name!r} is given twice. Give its seeds to one name: {name}=DIR,DIR.")
        if same := next((other for other in chosen if file_name(other) == file_name(name)), None):
            raise BadSettings(f"{option}: the files of {same!r} and {name!r} would have the same names. Rename one.")
        chosen[name] = folders
        for folder in folders:
            if other := places.get(folder.resolve()):
                raise BadSettings(f"{option}: {folder} is given twice, for {other!r} and {name!r}. Name each run once.")
            places[folder.resolve()] = name
    return chosen
