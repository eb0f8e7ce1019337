"""Compare SOUL's scores with the authors' own code, and write the numbers of docs/parity.md.

    git clone https://github.com/skywalker023/fantom AUTHORS/fantom     # and others, under their own names
    python -m benchmarks.parity --authors AUTHORS [--page docs/parity.md]

Invented answers go through our score and through the functions of the authors' files. The page says whose definition a
number has and what differs; this script fills in the columns "equal" and "largest difference". It writes the page only
if it could run everything: a number whose repository is not below AUTHORS is skipped, and the table says so. Nothing of
the repositories is copied.
"""

import re
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.parity import choices, fantom, scores, texts
from benchmarks.parity.comparison import Comparison
from soul.cli.arguments import existing_file, existing_folder
from soul.cli.error_border import Parser, reports_errors
from soul.errors import BadSettings

TOLERANCE = 5e-4  # of a score, in the unit of the metric; some authors round to three digits
COMPARISONS = [*fantom.COMPARISONS, *choices.COMPARISONS, *texts.COMPARISONS, *scores.COMPARISONS]
_EQUAL, _LARGEST = 4, 5  # columns of the page


def run(comparison: Comparison, authors: Path) -> tuple[float, ...] | str:
    """Score every case with both sides. Returns the differences, or why nothing was run."""
    clone = authors / comparison.repository
    if not clone.is_dir():
        return f"skipped: {clone} is not there"
    try:
        theirs = comparison.authors(clone)
        return tuple(abs(comparison.ours(case) - theirs(case)) for case in comparison.cases)
    except ModuleNotFoundError as error:  # their code needs what ours does not
        return f"skipped: pip install what {comparison.repository} needs ({error.name})"


def filled(page: str, found: Sequence[tuple[Comparison, tuple[float, ...]]]) -> str:
    """The page with these numbers.

    Raises:
        BadSettings: it has no line for a comparison.
    """
    lines = page.splitlines()
    cells = [re.split(r" ?(?<!\\)\| ?", line)[1:-1] if line.startswith("| ") else [] for line in lines]
    for one, differences in found:
        key = [one.evaluation_set, one.metric, one.repository]
        places = [place for place, texts in enumerate(cells) if [*texts[:2], *texts[3:4]] == key]
        if len(places) != 1:
            raise BadSettings(f"The page has {len(places)} lines for {', '.join(filter(None, key))}; it must have one.")
        (place,) = places
        equal = sum(difference <= TOLERANCE for difference in differences)
        cells[place][_EQUAL : _LARGEST + 1] = [f"{equal} of {len(differences)}", f"{max(differences):.2f}"]
        lines[place] = "".join(f"| {text} " for text in cells[place]) + "|"
    return "\n".join(lines) + "\n"


@reports_errors
def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line."""
    parser = Parser(prog="python -m benchmarks.parity", description=__doc__)
    parser.add_argument("--authors", type=existing_folder, required=True, help="folder with the authors' clones")
    parser.add_argument("--page", type=existing_file, metavar="FILE", help="write the numbers into this page")
    args = parser.parse_args(arguments)
    outcomes = [(comparison, run(comparison, args.authors)) for comparison in COMPARISONS]
    table = Table("evaluation set", "number", "authors' code", "largest difference")
    for one, outcome in outcomes:
        table.add_row(
            *(one.evaluation_set, one.metric, one.repository),
            outcome if isinstance(outcome, str) else f"{max(outcome):.2f}",
        )
    Console().print(table)
    found = [(one, outcome) for one, outcome in outcomes if not isinstance(outcome, str)]
    if args.page is None:
        return
    if skipped := [outcome for _, outcome in outcomes if isinstance(outcome, str)]:
        raise BadSettings(
            f"{args.page} is not written, because {len(skipped)} numbers were {skipped[0]} (and the like)"
        )
    args.page.write_text(filled(args.page.read_text(encoding="utf-8"), found), encoding="utf-8")
    print(f"written: {args.page}")


if __name__ == "__main__":
    sys.exit(main())
