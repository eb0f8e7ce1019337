"""`soul report RUN [RUN ...]`: write results.json, table.md, report.html and samples.parquet from a run's journal.

    soul report outputs/eval-base-1a2b3c4d

An evaluation writes them at its end; the command writes them again, even while the run is in progress.
"""

import json
from collections.abc import Sequence

from soul.cli.arguments import existing_folder
from soul.cli.error_border import Parser, reports_errors
from soul.evaluate.numbers.results import Results, breakdowns, summarise_run
from soul.evaluate.page import EvaluationView
from soul.evaluate.run.run_folder import EvaluationRun
from soul.evaluate.tables import run_table, samples_table
from soul.files.whole_file import write_whole
from soul.judge.ledger import numbers as usage_numbers
from soul.pages.export import REPORT, write_evaluation


def write_outputs(run: EvaluationRun) -> Results:
    """Write the outputs to the run's folder, and return its numbers."""
    results = summarise_run(run)
    numbers = results.to_json()
    if (tests := run.judge_checks.usage).calls:
        numbers["judge_tests"] = {"usage": usage_numbers(tests)}
    groups = breakdowns(run, results)
    for name, by_kind in groups.items():
        numbers["sets"][name]["groups"] = by_kind
    write_whole(run.folder / "results.json", json.dumps(numbers, indent=1))
    scores = run_table.markdown(results, run_table.columns_of(run.suite))
    text = "\n\n".join([*run_table.judged_by(run, results), scores, *run_table.cautions(run, results)])
    write_whole(run.folder / "table.md", text.rstrip() + "\n")
    samples_table.write_parquet(run, run.folder / samples_table.FILE)
    write_evaluation(EvaluationView(run.folder, (run, results)))
    return results


@reports_errors
def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command."""
    parser = Parser(prog="soul report", description=__doc__)
    parser.add_argument("runs", nargs="+", type=existing_folder, metavar="RUN", help="folder of an evaluation")
    for folder in parser.parse_args(arguments).runs:
        run = EvaluationRun.load(folder)
        write_outputs(run)
        print(f"{folder / REPORT} ({(folder / REPORT).stat().st_size / 1e6:,.1f} MB)")
