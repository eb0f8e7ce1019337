"""Compare SOUL's scores with the authors' own code, and write docs/parity.md.

    git clone https://github.com/skywalker023/fantom AUTHORS/fantom     # and others, under their own names
    python -m benchmarks.parity --authors AUTHORS [--page docs/parity.md]

Each module of this package has the comparisons of one benchmark: invented answers go through our score and through the
functions of the authors' files. A number whose repository is not below AUTHORS is skipped, and the table says so. The
page is written only if nothing is skipped. Nothing of the repositories is copied.
"""

from __future__ import annotations

import importlib
import pkgutil
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

import benchmarks.parity as package
from benchmarks.parity.comparison import Comparison
from soul.cli.arguments import existing_folder
from soul.cli.error_border import Parser, reports_errors
from soul.errors import BadSettings
from soul.suites import soul_v1

TOLERANCE = 5e-4  # of a score, in the unit of the metric; some authors round to three digits
COLUMNS = ("evaluation set", "number", "follows", "authors' code", "equal", "largest difference", "what differs")
INTRODUCTION = """\
# Parity

Whose definition each number of SOUL has, and what the authors' own code gives for the same invented answers. The script
that makes this page runs both:

```bash
python -m benchmarks.parity --authors AUTHORS --page docs/parity.md
```

AUTHORS holds clones of the repositories named below. "Follows" says whose definition our number has: the benchmark's
authors', the DITTO paper's, or that of its original code. Where paper and authors differ, the paper's number is the
headline of the paper's ten sets, and the authors' is a second metric (`accuracy_strict`, `accuracy_official`) where the
same answers give it. "Equal" counts the answers that both sides score alike. A line without a repository has no public
code that scores it.

"""


@dataclass(frozen=True)
class Outcome:
    """A comparison and what both sides gave.

    Attributes:
        differences: |ours - authors'| for each case; empty if there is nothing to run.
        skipped: why nothing was run, or "".
    """

    comparison: Comparison
    differences: tuple[float, ...] = ()
    skipped: str = ""

    def cells(self) -> tuple[str, ...]:
        """The texts of a table's row, in the order of COLUMNS."""
        one, each = self.comparison, self.differences
        equal = f"{sum(d <= TOLERANCE for d in each)} of {len(each)}" if each else self.skipped
        largest = f"{max(each):.2f}" if each else ""
        differs = one.differs[:1].upper() + one.differs[1:].removesuffix(".")
        return one.evaluation_set, one.metric, one.follows, one.repository, equal, largest, differs and f"{differs}."


def all_comparisons() -> Iterator[Comparison]:
    """The comparisons of all modules of this package, in the suite's order of their sets."""
    found: list[Comparison] = []
    for module in pkgutil.iter_modules(package.__path__):
        if module.name != "__main__":
            found += getattr(importlib.import_module(f"{package.__name__}.{module.name}"), "COMPARISONS", ())
    order = list(soul_v1.SETS)
    yield from sorted(found, key=lambda one: order.index(one.evaluation_set.split(",")[0]))


def run(comparison: Comparison, authors: Path) -> Outcome:
    """Score every case with both sides."""
    if comparison.ours is None or comparison.authors is None:
        return Outcome(comparison)
    clone = authors / comparison.repository
    if not clone.is_dir():
        return Outcome(comparison, skipped=f"skipped: {clone} is not there")
    try:
        theirs = comparison.authors(clone)
        return Outcome(comparison, tuple(abs(comparison.ours(case) - theirs(case)) for case in comparison.cases))
    except ModuleNotFoundError as error:  # their code needs what ours does not
        return Outcome(comparison, skipped=f"skipped: pip install what {comparison.repository} needs ({error.name})")


def page_of(outcomes: Sequence[Outcome]) -> str:
    """docs/parity.md."""
    lines = ["| " + " | ".join(COLUMNS) + " |", "|---|---|---|---|---:|---:|---|"]
    lines += ["| " + " | ".join(cell.replace("|", "\\|") for cell in outcome.cells()) + " |" for outcome in outcomes]
    return INTRODUCTION + "\n".join(lines) + "\n"


@reports_errors
def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line."""
    parser = Parser(prog="python -m benchmarks.parity", description=__doc__)
    parser.add_argument("--authors", type=existing_folder, required=True, help="folder with the authors' clones")
    parser.add_argument("--page", type=Path, metavar="FILE", help="write the table there as Markdown")
    args = parser.parse_args(arguments)
    outcomes = [run(comparison, args.authors) for comparison in all_comparisons()]
    table = Table(*COLUMNS, title="SOUL's numbers beside the authors' code, on the same invented answers")
    for outcome in outcomes:
        table.add_row(*outcome.cells())
    Console().print(table)
    skipped = [outcome.skipped for outcome in outcomes if outcome.skipped]
    if args.page is None:
        return
    if skipped:
        raise BadSettings(
            f"{args.page} is not written, because {len(skipped)} numbers were {skipped[0]} (and the like)"
        )
    args.page.write_text(page_of(outcomes), encoding="utf-8")
    print(f"written: {args.page}")


if __name__ == "__main__":
    sys.exit(main())
