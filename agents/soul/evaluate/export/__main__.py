"""`soul export RUN... --to lm-eval,wandb`: export results to other tools.

soul export outputs/eval-base-1a2b3c4d --to lm-eval
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from soul.cli.arguments import existing_folder, non_negative_int, output_folder
from soul.cli.error_border import Parser, reports_errors
from soul.evaluate.export import TARGETS, check, export
from soul.evaluate.export.options import ExportOptions
from soul.evaluate.numbers.results import summarise
from soul.evaluate.run.run_folder import EvaluationRun


@reports_errors
def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command."""
    parser = Parser(prog="soul export", description=(__doc__ or "").strip())
    parser.add_argument("runs", nargs="+", type=existing_folder, metavar="RUN", help="folders of evaluations")
    parser.add_argument("--to", required=True, help=f"one or more of {', '.join(TARGETS)}, comma-separated")
    parser.add_argument("--out", type=output_folder, help="folder for the files; default: in the run's folder")
    parser.add_argument("--step", type=non_negative_int, help="of the checkpoint, for the x axis of curves")
    parser.add_argument("--project", default="soul", help="of Weights & Biases, unless WANDB_PROJECT names one")
    parser.add_argument("--samples", type=non_negative_int, default=1000, help="most samples in the table of W&B")
    given = parser.parse_args(arguments)
    options = ExportOptions(given.out, given.step, given.project, given.samples)
    names = check(given.to or ",")
    for folder in given.runs:
        run = EvaluationRun.load(folder)
        for name, place in zip(
            names,
            export(
                run,
                summarise(run.samples, run.sets, judge_problems=run.judge_problems, stand_ins=run.stand_ins),
                names,
                options,
            ),
            strict=True,
        ):
            print(f"{name}: {place}")


if __name__ == "__main__":
    sys.exit(main())
