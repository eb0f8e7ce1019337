"""`soul compare BASE [RUN ...] [--against OTHER ...]`: compare evaluations or training runs, row by row.

    soul compare outputs/eval-base-1a2b3c4d outputs/eval-ditto-5e6f7a8b outputs/eval-grpo-90ab12cd --out comparison.md
    soul compare outputs/grpo-1 outputs/grpo-2 --against outputs/ditto-1 outputs/ditto-2 --json
    soul compare outputs/ditto-1 --within

The first run is the baseline. Runs whose settings differ only in their seed are seeds of one side; --against gives the
sides explicitly, one for each time it is given. Rows of evaluations are pairs if set, place in the file and record are
the same; of training runs, the groups of a prompt in the same step.
"""

import importlib
import json
from collections.abc import Sequence

from soul.cli.arguments import existing_folder, output_file
from soul.cli.error_border import Parser, reports_errors
from soul.compare import report
from soul.compare.evaluations import EvaluationSide
from soul.compare.runs import NoSides, compare_runs
from soul.compare.table import results_table
from soul.table import terminal


def options() -> Parser:
    """The command line."""
    parser = Parser(prog="soul compare", description=__doc__)
    add = parser.add_argument
    add("runs", type=existing_folder, nargs="+", metavar="RUN", help="folders; the first is the baseline")
    add(
        "--against",
        type=existing_folder,
        nargs="+",
        action="append",
        default=[],
        metavar="RUN",
        help="one side's seeds",
    )
    add("--within", action="store_true", help="compare the refined answers of each training run with its drafts")
    add("--table", action="store_true", help="print the scores of evaluations, a column for each side")
    add("--out", type=output_file, metavar="F.md", help="also write the table as Markdown")
    add("--json", action="store_true", help="print all numbers as JSON in place of the table")
    add("--html", type=output_file, metavar="F.html", help="write a page with both texts of every row")
    return parser


@reports_errors
def main(arguments: Sequence[str] | None = None) -> None:
    """Compare the runs, print the table, and write the requested files."""
    given = options().parse_args(arguments)
    found = compare_runs(given.runs, given.against, within=given.within)
    shown = report.table(found.comparisons)
    if given.table:
        sides = [found.comparisons[0].base, *(one.other for one in found.comparisons)]
        evaluations = [side for side in sides if isinstance(side, EvaluationSide)]
        if not evaluations:
            raise NoSides("--table shows the scores of evaluations. Leave it out for training runs.")
        shown = results_table(evaluations, found.comparisons)
    if given.out is not None:
        given.out.parent.mkdir(parents=True, exist_ok=True)
        given.out.write_text(report.markdown(found.comparisons, shown), encoding="utf-8")
    console = terminal(stderr=given.json)
    if given.json:
        print(json.dumps(found.to_json(), indent=1, ensure_ascii=False))
    else:
        console.print(shown.fitting(console.width, "--out F.md writes them").rich(report.title(found.comparisons)))
    if given.html is not None:
        export = importlib.import_module("soul.pages.export")  # by name, because the pages import this package
        export.write_comparison(given.runs, given.html, against=given.against, within=given.within)
        console.print(f"{given.html} ({given.html.stat().st_size / 1e6:,.1f} MB)", soft_wrap=True, highlight=False)
