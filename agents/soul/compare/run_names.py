"""Labels for the runs of a comparison."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from soul.errors import SoulError
from soul.evaluate.run.run_folder import EvaluationRun


class SameRun(SoulError):
    """A run would be compared with itself."""


def distinct(folders: Sequence[Path]) -> Sequence[Path]:
    """Return the folders, after a check that no two are the same.

    Raises:
        SameRun: two of them are the same folder.
    """
    places = [folder.resolve() for folder in folders]
    for folder, place in zip(folders, places, strict=True):
        if places.count(place) > 1:
            raise SameRun(f"{folder} is named twice. Name the folders of different runs.")
    return folders


def labels(runs: Sequence[EvaluationRun]) -> list[str]:
    """A label for each run: the model's name; if two are equal, the folder's name; if these are too, the path."""
    paths = [run.folder.resolve() for run in runs]
    for names in ([run.name for run in runs], [path.name for path in paths]):
        if len(set(names)) == len(names):
            return names
    return [str(path) for path in paths]
