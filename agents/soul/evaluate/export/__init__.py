"""The results of a run in the forms that other tools read: `python -m soul.evaluate.export RUN --to lm-eval,wandb`

scalars.py          the numbers of a run under flat names, on the table's scale
lm_eval.py          results_<date>.json and samples_<set>_<date>.jsonl as lm-evaluation-harness writes them
tensorboard_log.py  an event file
wandb_log.py        a run of Weights & Biases

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
    """What the targets can be told.

    Attributes:
        out: the folder for files; None: one in the run's folder.
        step: of the checkpoint that was evaluated: the x axis of curves.
        project: of Weights & Biases, where WANDB_PROJECT names none.
        samples: so many samples in the table of Weights & Biases.
    """

    out: Path | None = None
    step: int | None = None
    project: str = "soul"
    samples: int = 1000


@dataclass(frozen=True)
class Target:
    """A tool.

    Attributes:
        package: that must be installed to write for it; None: none.
        write: writes, and says where to find it.
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


def check(words: str) -> list[str]:
    """The targets that `lm-eval,wandb` names, each once.

    Raises:
        BadSettings: there is no such target, or its package is not installed.
    """
    names = list(dict.fromkeys(word.strip() for word in words.split(",") if word.strip()))
    if words and not names:
        raise BadSettings(f"--export {words!r} names no target. There are: {', '.join(TARGETS)}.")
    for name in names:
        if name not in TARGETS:
            raise BadSettings(f"--export {name!r}: there is no such target. There are: {', '.join(TARGETS)}.")
        package = TARGETS[name].package
        if package is not None and importlib.util.find_spec(package) is None:
            raise BadSettings(f"--export {name} needs the package {package}: pip install {package}")
    return names


def export(run: EvaluationRun, results: Results, names: list[str], options: ExportOptions | None = None) -> list[str]:
    """Write a run's results for these targets.

    Returns:
        For each where to find it.
    """
    return [TARGETS[name].write(run, results, options or ExportOptions()) for name in names]
