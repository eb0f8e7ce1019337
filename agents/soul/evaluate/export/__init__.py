"""Export the results of a run to other tools: `soul export RUN --to lm-eval,wandb`

options.py          what all exports may be told
scalars.py          the numbers of a run under flat names, on the table's scale
targets.py          the right answer of a row, and the answers that were read
lm_eval.py          results_<date>.json and samples_<set>_<date>.jsonl in the format of lm-evaluation-harness
tensorboard_log.py  an event file for TensorBoard
wandb_log.py        a run in Weights & Biases

An evaluation calls `check` before its first sample and `export` after its last.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from soul.errors import BadSettings
from soul.evaluate.export import lm_eval, tensorboard_log, wandb_log
from soul.evaluate.export.options import ExportOptions
from soul.evaluate.numbers.results import Results
from soul.evaluate.run.run_folder import EvaluationRun


@dataclass(frozen=True)
class Target:
    """A tool to export to.

    Attributes:
        package: the package that the export needs; None if it needs none.
        write: write the export, and return where it is: a file, a folder or a URL.
    """

    package: str | None
    write: Callable[[EvaluationRun, Results, ExportOptions], str]


TARGETS: Mapping[str, Target] = {
    "lm-eval": Target(None, lm_eval.write),
    "tensorboard": Target("tensorboard", tensorboard_log.write),
    "wandb": Target("wandb", wandb_log.write),
}


def check(targets: str) -> list[str]:
    """Parse `lm-eval,wandb`, and check that each target can be written.

    Raises:
        BadSettings: there is no such target, or its package is not installed.
    """
    names = list(dict.fromkeys(name.strip() for name in targets.split(",") if name.strip()))
    if targets and not names:
        raise BadSettings(f"--export {targets!r} names no target. The targets are: {', '.join(TARGETS)}.")
    for name in names:
        if name not in TARGETS:
            raise BadSettings(f"--export {name!r}: there is no such target. The targets are: {', '.join(TARGETS)}.")
        package = TARGETS[name].package
        if package is not None and importlib.util.find_spec(package) is None:
            raise BadSettings(f"--export {name} needs the package {package}: pip install {package}")
    return names


def export(run: EvaluationRun, results: Results, names: list[str], options: ExportOptions | None = None) -> list[str]:
    """Write a run's results for these targets, and return where each of them is."""
    return [TARGETS[name].write(run, results, options or ExportOptions()) for name in names]
