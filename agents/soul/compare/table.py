"""`soul compare table RUN RUN [RUN ...]`: put finished evaluations into one table, one column per run.

    soul compare table outputs/eval-base-1a2b3c4d outputs/eval-trained-5e6f7a8b --out models.md

A run is the folder of an evaluation. A score that is not comparable with the first run's has a mark, and a note below
the table gives the reason: another judge, other rows, other options, or an unfinished run.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence

from soul.cli.arguments import existing_folder, output_file
from soul.cli.error_border import Parser, reports_errors
from soul.compare.comparison import distinct, labels
from soul.compare.pairs import pair_up
from soul.compare.protocol import deviations
from soul.evaluate.numbers.results import summarise_run
from soul.evaluate.run.run_folder import EvaluationRun
from soul.evaluate.tables import side_by_side
from soul.table import terminal

Remarks = Mapping[str, Mapping[str, Sequence[str]]]  # model -> remark -> its sets


def remarks(models: Mapping[str, EvaluationRun]) -> dict[str, dict[str, list[str]]]:
    """The reasons why scores of each run are not comparable with the first run's: model -> reason -> sets."""
    (first, base), *_ = models.items()
    by_label: dict[str, dict[str, list[str]]] = {}
    for label, run in models.items():
        for name in run.sets:
            texts = list(_unfinished(run, name))
            if label != first:
                texts += _against(base, run, name, first)
            for text in texts:
                by_label.setdefault(label, {}).setdefault(text, []).append(name)
    return by_label


def numbered(remarks: Remarks) -> tuple[side_by_side.Marks, list[str]]:
    """Number the remarks. Return the numbers to print behind each score, and the notes that explain them."""
    marks: dict[str, dict[str, str]] = {}
    notes: list[str] = []
    for label, by_text in remarks.items():
        for text, names in by_text.items():
            notes.append(f"({len(notes) + 1}) {label}: {text}, in {', '.join(names)}.")
            for name in names:
                before = marks.setdefault(label, {}).get(name)
                marks[label][name] = f"{before} ({len(notes)})" if before else f"({len(notes)})"
    return marks, notes


def _unfinished(run: EvaluationRun, name: str) -> Iterator[str]:
    count = len(run.by_set.get(name, ()))
    if count < run.wanted[name]:
        yield f"not finished, {count:,} of {run.wanted[name]:,} samples"


def _against(base: EvaluationRun, run: EvaluationRun, name: str, first: str) -> Iterator[str]:
    left, right = base.by_set.get(name, ()), run.by_set.get(name, ())
    if not left or not right:
        return
    for deviation in deviations(base, run, left, right):
        if deviation.matters:
            yield f"not comparable with {first}: {deviation.text}"
    paired = pair_up(left, right)
    differing = {
        f"not in {first}": paired.only_other,
        f"only in {first}": paired.only_base,
        "with another record": paired.changed,
    }
    if any(differing.values()):
        counts = ", ".join(f"{count:,} {what}" for what, count in differing.items() if count)
        yield f"other rows than {first}: {counts}"


@reports_errors
def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command."""
    parser = Parser(prog="soul compare table", description=__doc__)
    parser.add_argument("runs", nargs="+", type=existing_folder, metavar="RUN", help="folder of an evaluation")
    parser.add_argument("--out", type=output_file, metavar="F.md", help="also write the table as Markdown")
    given = parser.parse_args(arguments)
    runs = [EvaluationRun.load(folder) for folder in distinct(given.runs)]
    models = dict(zip(labels(runs), runs, strict=True))
    results = {label: summarise_run(run) for label, run in models.items()}
    marks, notes = numbered(remarks(models))
    if given.out is not None:
        given.out.parent.mkdir(parents=True, exist_ok=True)
        given.out.write_text(side_by_side.markdown(results, marks=marks, notes=notes), encoding="utf-8")
    console = terminal()
    table = side_by_side.models_table(results, width=console.width, marks=marks, notes=notes)
    console.print(table.rich("Models"))


if __name__ == "__main__":
    sys.exit(main())
