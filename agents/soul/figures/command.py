"""`soul figures --runs NAME=DIR,DIR ... --evals NAME=DIR,DIR ... --out DIR`: figures and tables from your own runs.

    soul figures --runs ditto=outputs/ditto-1,outputs/ditto-2 grpo=outputs/grpo-1 --out figures

`--runs` takes folders of training runs, `--evals` folders of `soul evaluate`; both may still be running. Several
folders with one name are seeds. Figures are written as PDF, SVG, PNG and CSV, tables as Markdown, LaTeX and CSV;
index.md lists them, says what could not be drawn and why, and has the hashes of all runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from soul.cli.arguments import output_folder
from soul.cli.error_border import Parser, reports_errors
from soul.compare.comparison import Comparison
from soul.compare.evaluations import EvaluationSide, NothingToCompare, compare_evaluations
from soul.compare.table import results_table
from soul.errors import BadSettings
from soul.evaluate.run.run_folder import EvaluationRun
from soul.figures.drawing import colours, draw, require_matplotlib
from soul.figures.training import ablations, gap, training_curves
from soul.figures.training_run import Runs, TrainingRun, by_name, named_folders
from soul.files.whole_file import write_whole
from soul.table import Table

FILE, BASELINE = "index.md", "grpo"


def options() -> Parser:
    """The command line."""
    parser = Parser(prog="soul figures", description=__doc__)
    add = parser.add_argument
    add("--runs", type=named_folders, nargs="+", default=[], metavar="NAME=DIR,DIR", help="training runs")
    add("--evals", type=named_folders, nargs="+", default=[], metavar="NAME=DIR,DIR", help="evaluations")
    add("--out", type=output_folder, required=True, help="folder for figures and tables")
    return parser


@reports_errors
def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command."""
    given = options().parse_args(arguments)
    if not (given.runs or given.evals):
        raise BadSettings("soul figures: name training runs (--runs NAME=DIR) or evaluations (--evals NAME=DIR).")
    folders, evaluated = by_name("--runs", given.runs), by_name("--evals", given.evals)
    if folders:
        require_matplotlib()
    runs = {name: [TrainingRun.load(name, folder) for folder in of_name] for name, of_name in folders.items()}
    evals = [EvaluationSide(name, list(map(EvaluationRun.load, of_name))) for name, of_name in evaluated.items()]
    index = Index()
    given.out.mkdir(parents=True, exist_ok=True)
    if runs:
        draw_runs(runs, given.out, index)
    if evals:
        table = evaluation_table(evals, index.missing)
        index.sections[table.caption] = table.write(given.out)
        index.sources += table.sources
    print(index.write(given.out))
    for sentence in index.missing:
        print(f"not drawn: {sentence}")


def evaluation_table(evals: Sequence[EvaluationSide], missing: list[str]) -> Table:
    """Scores against "grpo" or the first; a sentence joins `missing` where no row can be paired."""
    base = next((each for each in evals if each.label == BASELINE), evals[0])
    compared: list[Comparison] = []
    for each in evals:
        try:
            compared += [compare_evaluations(base, each)] if each is not base else []
        except NothingToCompare as error:
            missing.append(f"significance of {each.label}: {error}")
    return results_table(evals, compared)


def draw_runs(runs: Runs, out: Path, index: Index) -> None:
    """Draw every figure that the training runs have the data for."""
    palette = colours(list(runs))
    for figure in (training_curves(runs), gap(runs), *ablations(runs)):
        index.missing += figure.missing
        if figure.panels:
            index.sections[figure.caption] = draw(figure, out, palette)
    index.sources += [(run.name, run.folder, run.sha256) for seeds in runs.values() for run in seeds]


@dataclass
class Index:
    """The output of a command: files by caption, a sentence for each missing thing, hashes of all runs."""

    sections: dict[str, list[Path]] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)
    sources: list[tuple[str, Path, str]] = field(default_factory=list)

    def write(self, folder: Path) -> Path:
        """Write it as Markdown."""
        lines = ["# Figures", ""]
        for caption, files in self.sections.items():
            lines += [f"- {caption} {', '.join(f'[{file.name}]({file.name})' for file in files)}"]
        if self.missing:
            lines += ["", "## Not drawn", "", *(f"- {sentence}" for sentence in self.missing)]
        lines += ["", "## Runs", "", "| name | folder | sha256 |", "|---|---|---|"]
        lines += [f"| {name} | `{source}` | `{sha256}` |" for name, source, sha256 in self.sources]
        write_whole(folder / FILE, "\n".join(lines) + "\n")
        return folder / FILE
