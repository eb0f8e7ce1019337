"""What the runs of a comparison are called."""

from __future__ import annotations

from collections.abc import Sequence

from agents.evaluate.run_folder import EvaluationRun


def labels(runs: Sequence[EvaluationRun]) -> list[str]:
    """One name for each: the models' names; the folders' names, then their paths, where two would be the same."""
    paths = [run.folder.resolve() for run in runs]
    for names in ([run.name for run in runs], [path.name for path in paths]):
        if len(set(names)) == len(names):
            return names
    return [str(path) for path in paths]
