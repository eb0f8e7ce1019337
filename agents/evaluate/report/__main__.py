"""`python -m agents.evaluate.report RUN [RUN ...]`: write report, tables and samples of runs that are there again."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from agents.errors import SoulError
from agents.evaluate.outputs import write_outputs
from agents.evaluate.report import FILE
from agents.evaluate.run_folder import EvaluationRun

USER_ERROR = 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit code: 0; 2 where the user can mend it."""
    parser = argparse.ArgumentParser(prog="python -m agents.evaluate.report", description=__doc__)
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="the folder of an evaluation")
    try:
        for folder in parser.parse_args(arguments).runs:
            run = EvaluationRun.load(folder)
            write_outputs(run)
            print(f"{folder / FILE} ({(folder / FILE).stat().st_size / 1e6:,.1f} MB)")
    except SoulError as error:
        print(f"\n{type(error).__name__}: {error}\n", file=sys.stderr)
        return USER_ERROR
    return 0


if __name__ == "__main__":
    sys.exit(main())
