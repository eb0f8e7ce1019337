"""Export the results of a run to other tools: `soul export RUN --to lm-eval,wandb`

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
from pathlib import Path

from soul.errors import BadSettings
from soul.evaluate.numbers.results import Results
from soul.evaluate.run.run_folder import EvaluationRun


@dataclass(frozen=True)
class ExportOptions:
    """Options of the exports.

    Attributes:
        out: the folder for files; None for one in the run's folder.
        step: training step of the evaluated checkpoint, for the x axis of curves.
        project: of Weights & Biases, unless WANDB_PROJECT names one.
        samples: the most samples to put into the table of Weights & Biases.
    """

    out: Path | None = None
    step: int | None = None
    project: str = "soul"
    samples: int = 1000


@dataclass(frozen=True)
class Target:
    """A tool to export to.

    Attributes:
        package: the package that the export needs; None if it needs none.
        write: write the export, and return where it is.
    """

    package: str | None
    write: Callable[[EvaluationRun, Results, ExportOptions], str]


def _lm_eval(run: EvaluationRun, results: Results, options: ExportOptions) -> str:
    from soul.evaluate.export import lm_eval

    return str(lm_eval.write(run, results, options.out or run.folder / "lm-eval"))


def _tensorboard(run: EvaluationRun, results: Results, options: ExportOptions) -> str:
    from soul.evaluate.export import tensorboard_log

    return str(tensorboard_log.write(results, options.out or run.folder / "tensorboard", options.step))


def _wandb(run: EvaluationRun, results: Results, options: ExportOptions) -> str:
    from soul.evaluate.export import wandb_log

    folder = options.out or run.folder
    return wandb_log.write(run, results, folder, options.project, options.step, options.samples)


TARGETS: Mapping[str, Target] = {
    "lm-eval": Target(None, _lm_eval),
    "tensorboard": Target("tensorboard", _tensorboard),
    "wandb": Target("wandb", _wandb),
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
