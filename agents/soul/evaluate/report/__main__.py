"""`soul report RUN [RUN ...]`: write the report, tables and samples of runs again.

soul report outputs/eval-base-1a2b3c4d
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from soul.cli.arguments import existing_folder
from soul.cli.error_border import Parser, reports_errors
from soul.evaluate.report import FILE
from soul.evaluate.report.outputs import write_outputs
from soul.evaluate.run.run_folder import EvaluationRun


@reports_errors
def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command."""
    parser = Parser(prog="soul report", description=__doc__)
    parser.add_argument("runs", nargs="+", type=existing_folder, metavar="RUN", help="folder of an evaluation")
    for folder in parser.parse_args(arguments).runs:
        run = EvaluationRun.load(folder)
        write_outputs(run)
        print(f"{folder / FILE} ({(folder / FILE).stat().st_size / 1e6:,.1f} MB)")


if __name__ == "__main__":
    sys.exit(main())
