"""What a run leaves beside its journal, and made from it: results.json, table.md, report.html and samples.parquet.

They can be made again at any time, also of a run that is under way: `python -m soul.evaluate.report RUN`.
"""

from __future__ import annotations

import json

from soul.evaluate.numbers.breakdown import breakdowns
from soul.evaluate.numbers.results import Results, summarise
from soul.evaluate.report import write_html
from soul.evaluate.run.run_folder import EvaluationRun
from soul.evaluate.tables import notes, samples_table, table
from soul.files.whole_file import write_whole


def write_outputs(run: EvaluationRun) -> Results:
    """Write them into the run's folder.

    Returns:
        The numbers.
    """
    results = summarise(run.samples, run.sets)
    numbers = results.to_json()
    groups = breakdowns(run, results)
    for name, of_set in groups.items():
        numbers["sets"][name]["groups"] = {kind: [vars(group) for group in of_kind] for kind, of_kind in of_set.items()}
    write_whole(run.folder / "results.json", json.dumps(numbers, indent=1))
    drawn = table.markdown(results, table.columns_of(run.suite))
    text = "\n\n".join([*notes.header(run, results), drawn, *notes.warnings(run, results)])
    write_whole(run.folder / "table.md", text.rstrip() + "\n")
    samples_table.write_parquet(run, run.folder / samples_table.FILE)
    write_html(run, results, groups)
    return results
