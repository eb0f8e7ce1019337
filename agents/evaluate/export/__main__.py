"""`python -m agents.evaluate.export RUN... --to lm-eval,wandb`: results in the forms that other tools read."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from agents.errors import SoulError
from agents.evaluate.export import TARGETS, ExportOptions, check, export
from agents.evaluate.results import summarise
from agents.evaluate.run_folder import EvaluationRun

USER_ERROR = 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit code: 0; 2 where the user can mend it."""
    parser = argparse.ArgumentParser(prog="python -m agents.evaluate.export", description=(__doc__ or "").strip())
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="folders of evaluations")
    parser.add_argument("--to", required=True, help=f"of {', '.join(TARGETS)}; several with commas")
    parser.add_argument("--out", type=Path, help="folder for the files; default: in the run's folder")
    parser.add_argument("--step", type=int, help="of the checkpoint: the x axis of curves")
    parser.add_argument("--project", default="soul", help="of Weights & Biases, unless WANDB_PROJECT names one")
    parser.add_argument("--samples", type=int, default=1000, help="samples in the table of Weights & Biases")
    given = parser.parse_args(arguments)
    options = ExportOptions(given.out, given.step, given.project, given.samples)
    try:
        names = check(given.to)
        for folder in given.runs:
            run = EvaluationRun.load(folder)
            for name, place in zip(names, export(run, summarise(run.samples, run.sets), names, options), strict=True):
                print(f"{name}: {place}")
    except SoulError as error:
        print(f"\n{type(error).__name__}: {error}\n", file=sys.stderr)
        return USER_ERROR
    return 0


if __name__ == "__main__":
    sys.exit(main())
