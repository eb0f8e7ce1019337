"""Write a run as one self-contained HTML file: `write_html`, or `soul report RUN`.

overview.py        the head: model, judges, settings, first numbers, warnings
results_table.py   the table, with set_detail.py (the details of a set), interval_bar.py and costs.py
group_names.py     readable names of groups
packing.py         the samples, compressed for the page
outputs.py         writes this file and the run's other outputs
page.html          the skeleton of the page, with head.html, results.html, panes.html (the list and the open entry) and
                   report.css; page_parts.py assembles it, markup.py escapes the values
script/            store.js (unpacks the samples), elements.js, link.js (filters and order in the URL), results.js (the
                   table), list.js and browser.js (any list), samples.js (the list of samples), sample.js (one sample),
                   scene.js (scenes of several speakers), page.js (navigation and keys)

The page loads nothing, and its content security policy forbids it to. The policy allows script and style by their
hashes, so text from a model can never run, and Trusted Types ensure that texts are inserted only as text.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from soul.evaluate.numbers.breakdown import Breakdowns
from soul.evaluate.numbers.results import Results
from soul.evaluate.report.markup import join
from soul.evaluate.report.overview import overview
from soul.evaluate.report.packing import index, sample_lines
from soul.evaluate.report.page_parts import Page, filled, read, script_of, write_page
from soul.evaluate.report.results_table import chooser, notes, results_table
from soul.evaluate.report.set_detail import names_of
from soul.evaluate.run.run_folder import EvaluationRun
from soul.evaluate.tables import run_table
from soul.evaluate.tables.answers import answers_of
from soul.task_types import Metric

FILE = "report.html"
SCRIPTS = ("store", "elements", "link", "results", "list", "browser", "scene", "sample", "samples", "page")


def write_html(run: EvaluationRun, results: Results, groups: Breakdowns) -> Path:
    """Write the report into the run's folder, and return the file.

    Args:
        results: the run's results (`results.summarise(run.samples, run.sets)`).
        groups: their `breakdowns`.
    """
    file = run.folder / FILE
    write_page(file, _pieces(run, results, groups))
    return file


def _pieces(run: EvaluationRun, results: Results, groups: Breakdowns) -> Iterator[str]:
    """The page in pieces, because the samples make it large."""
    names = run_table.ordered(list(results.sets))
    ordered = [sample for name in names for sample in run.by_set[name]]
    answers = answers_of(ordered)
    columns = run_table.columns_of(run.suite)
    page = Page(
        kind="report",
        title=join(f"{run.name} on SOUL"),
        results=filled(
            read("results.html"),
            overview=overview(run, results),
            chooser=chooser(columns),
            table=results_table(results, groups, columns),
            notes=notes(results),
        ),
        entry="sample",
        entries="samples",
        state="Verdict",
        number="Score",
        count=len(ordered),
        style=read("report.css"),
        script=script_of(SCRIPTS),
    )
    known = {
        "model": run.name,
        "sets": [set_facts(name, results.sets[name].reward) for name in names],
        "n": run.n,
        "names": names_of(sample.groups for sample in ordered),
    }
    return page.pieces(sample_lines(ordered, answers), known, lambda starts: index(ordered, answers, names, starts))


def set_facts(name: str, metric: Metric) -> dict[str, Any]:
    """The name of a set and the metric of its samples, for the page's script."""
    best = metric.high if metric.higher_is_better else metric.low
    return {"name": name, "metric": metric.name, "best": best, "worst": metric.worst}
