"""`soul compare RUN_A RUN_B [RUN_C ...]`: compare finished evaluations with the first one, row by row.

    soul compare outputs/eval-base-1a2b3c4d outputs/eval-trained-5e6f7a8b --out comparison.md
    soul compare outputs/eval-base-1a2b3c4d outputs/eval-trained-5e6f7a8b --html comparison.html --json

A run is the folder of an evaluation. Two rows are a pair if set, place in the file and record are the same.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from soul.cli.arguments import existing_folder, output_file
from soul.cli.error_border import Parser, reports_errors
from soul.compare import report
from soul.compare.comparison import Comparison, compare, distinct, labels
from soul.compare.page import write_comparison
from soul.evaluate.run.run_folder import EvaluationRun
from soul.table import terminal


def compared(folders: Sequence[Path]) -> list[Comparison]:
    """Compare every run with the first.

    Raises:
        SoulError: a folder is not an evaluation, or there is nothing to compare.
    """
    base, *others = runs = [EvaluationRun.load(folder) for folder in distinct(folders)]
    first, *names = labels(runs)
    return [compare(base, other, (first, name)) for other, name in zip(others, names, strict=True)]


@reports_errors
def main(arguments: Sequence[str] | None = None) -> None:
    """Compare the runs, print the tables, and write the requested files."""
    parser = Parser(prog="soul compare", description=__doc__)
    parser.add_argument("baseline", type=existing_folder, help="folder of the run to compare with")
    parser.add_argument("runs", type=existing_folder, nargs="+", help="folders of the runs to compare")
    parser.add_argument("--out", type=output_file, metavar="F.md", help="also write the tables as Markdown")
    parser.add_argument("--html", type=output_file, metavar="F.html", help="write a page of all paired rows")
    parser.add_argument("--json", action="store_true", help="print JSON in place of tables")
    given = parser.parse_args(arguments)
    comparisons = compared([given.baseline, *given.runs])
    if given.out is not None:
        given.out.parent.mkdir(parents=True, exist_ok=True)
        given.out.write_text("\n".join(map(report.markdown, comparisons)), encoding="utf-8")
    if given.json:
        print(json.dumps([report.as_json(one) for one in comparisons], indent=1, ensure_ascii=False))
    console = terminal(stderr=given.json)
    for one in comparisons:
        if not given.json:
            console.print(report.rich_view(one, console.width))
        if given.html is not None:
            file: Path = given.html
            if len(comparisons) > 1:
                file = file.with_name(f"{file.stem}-{one.other.folder.resolve().name}{file.suffix}")
            write_comparison(one, file)
            console.print(f"{file} ({file.stat().st_size / 1e6:,.1f} MB)", soft_wrap=True, highlight=False)


if __name__ == "__main__":
    sys.exit(main())
