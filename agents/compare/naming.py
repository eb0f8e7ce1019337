"""Names for the runs of a comparison."""

from __future__ import annotations

from collections.abc import Sequence

from agents.evaluate.run_folder import EvaluationRun


def labels(runs: Sequence[EvaluationRun]) -> list[str]:
    """A name for each run: its model's; if two are equal, its folder's; if two of these are equal, its path."""
    paths = [run.folder.resolve() for run in runs]
    for names in ([run.name for run in runs], [path.name for path in paths]):
        if len(set(names)) == len(names):
            return names
    return [str(path) for path in paths]
