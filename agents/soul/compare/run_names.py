"""Names for the runs of a comparison."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from soul.errors import SoulError
from soul.evaluate.run.run_folder import EvaluationRun


class SameRun(SoulError):
    """A run is to be compared with itself."""


def distinct(folders: Sequence[Path]) -> Sequence[Path]:
    """The folders, each of another run.

    Raises:
        SameRun: two of them are the same folder.
    """
    places = [folder.resolve() for folder in folders]
    for folder, place in zip(folders, places, strict=True):
        if places.count(place) > 1:
            raise SameRun(f"{folder} is named twice. Name the folders of different runs.")
    return folders


def labels(runs: Sequence[EvaluationRun]) -> list[str]:
    """A name for each run: its model's; if two are equal, its folder's; if two of these are equal, its path."""
    paths = [run.folder.resolve() for run in runs]
    for names in ([run.name for run in runs], [path.name for path in paths]):
        if len(set(names)) == len(names):
            return names
    return [str(path) for path in paths]
