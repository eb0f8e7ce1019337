"""What a run leaves beside its journal, and made from it: results.json, table.md, report.html and samples.parquet.

They can be made again at any time, also of a run that is under way: `python -m agents.evaluate.report RUN`.
"""

from __future__ import annotations

import json

from agents.evaluate import notes, samples_table, table
from agents.evaluate.breakdown import breakdowns
from agents.evaluate.report import write_html
from agents.evaluate.results import Results, summarise
from agents.evaluate.run_folder import EvaluationRun


def write_outputs(run: EvaluationRun) -> Results:
    """Write them into the run's folder.

    Returns:
        The numbers.
    """
    found = summarise(run.samples, run.sets)
    numbers = found.to_json()
    groups = breakdowns(run, found)
    for name, of_set in groups.items():
        numbers["sets"][name]["groups"] = {kind: [vars(group) for group in of_kind] for kind, of_kind in of_set.items()}
    (run.folder / "results.json").write_text(json.dumps(numbers, indent=1), encoding="utf-8")
    drawn = table.markdown(found, table.columns_of(run.suite))
    text = "\n\n".join([*notes.header(run, found), drawn, *notes.warnings(run, found)])
    (run.folder / "table.md").write_text(text.rstrip() + "\n", encoding="utf-8")
    samples_table.write_parquet(run, run.folder / samples_table.FILE)
    write_html(run, found, groups)
    return found
