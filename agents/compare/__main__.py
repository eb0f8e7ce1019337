"""`python -m agents.compare RUN_A RUN_B [RUN_C ...]`: finished evaluations, row by row against the first.

    python -m agents.compare outputs/eval-base-1a2b3c4d outputs/eval-trained-5e6f7a8b --out comparison.md
    python -m agents.compare outputs/eval-base-1a2b3c4d outputs/eval-trained-5e6f7a8b --html comparison.html

A run is the folder of an evaluation. Rows are paired: the same set, the same place in its file, the same record.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from agents.compare import report
from agents.compare.comparison import Comparison, compare
from agents.compare.naming import labels
from agents.compare.page import write_comparison
from agents.errors import SoulError
from agents.evaluate.run_folder import EvaluationRun

USER_ERROR = 2
ROWS = 2  # that gained, and as many that lost


def compared(folders: Sequence[Path], seed: int = 0) -> list[Comparison]:
    """Every run against the first.

    Raises:
        SoulError: a folder is not that of an evaluation, or there is nothing to compare.
    """
    base, *others = runs = [EvaluationRun.load(folder) for folder in folders]
    first, *names = labels(runs)
    return [compare(base, other, (first, name), seed) for other, name in zip(others, names, strict=True)]


def html_file(wanted: Path, one: Comparison, *, several: bool) -> Path:
    """The file of a comparison's page; where there are several, the name of the compared run is part of it."""
    return wanted.with_name(f"{wanted.stem}-{one.other.folder.resolve().name}{wanted.suffix}") if several else wanted


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit code: 0; 2 for an error that the user can fix."""
    parser = argparse.ArgumentParser(
        prog="python -m agents.compare", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("baseline", type=Path, help="folder of the run that the others are held against")
    parser.add_argument("runs", type=Path, nargs="+", help="folders of other runs")
    parser.add_argument("--out", type=Path, metavar="F.md", help="write it as Markdown too")
    parser.add_argument("--html", type=Path, metavar="F.html", help="write a page with every paired row, both texts")
    parser.add_argument("--json", action="store_true", help="print JSON and no tables")
    parser.add_argument("--rows", type=int, default=ROWS, help=f"of a set to show, gained and lost (default {ROWS})")
    parser.add_argument("--seed", type=int, default=0, help="of the bootstrap")
    given = parser.parse_args(arguments)
    try:
        show(given)
    except (SoulError, OSError) as error:
        print(f"\n{type(error).__name__}: {error}\n", file=sys.stderr)
        return USER_ERROR
    return 0


def show(given: argparse.Namespace) -> None:
    """Compare, print the tables, and write what was asked for.

    Raises:
        SoulError: as `compared`. OSError: a file cannot be written.
    """
    comparisons = compared([given.baseline, *given.runs], given.seed)
    rows = max(0, given.rows)
    if given.out is not None:
        given.out.parent.mkdir(parents=True, exist_ok=True)
        given.out.write_text("\n".join(report.markdown(one, rows) for one in comparisons), encoding="utf-8")
    if given.html is not None:
        for one in comparisons:
            file = html_file(given.html, one, several=len(comparisons) > 1)
            write_comparison(one, file)
            print(f"{file} ({file.stat().st_size / 1e6:,.1f} MB)", file=sys.stderr if given.json else sys.stdout)
    if given.json:
        print(json.dumps([report.to_json(one, rows) for one in comparisons], indent=1, ensure_ascii=False))
    else:
        console = Console(width=max(120, Console().width))
        for one in comparisons:
            console.print(report.rich_view(one, rows))


if __name__ == "__main__":
    sys.exit(main())
