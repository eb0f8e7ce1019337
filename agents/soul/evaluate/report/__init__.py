"""Write a run as one self-contained HTML file: `write_html`, or `soul report RUN`.

results_table.py   the table, and the details of each set; group_names.json has readable names of groups
page_parts.py      assembles a page: skeleton, script, policy, and the samples, compressed
markup.py          escapes the values, and draws intervals
outputs.py         writes this file and the run's other outputs
page.html          the skeleton of the page, with head.html, results.html, panes.html (the list and the open entry) and
                   report.css
script/            store.js (unpacks the samples), elements.js, link.js (filters and order in the URL), results.js (the
                   table), list.js and browser.js (any list), samples.js (the list of samples), sample.js (one sample),
                   scene.js (scenes of several speakers), page.js (navigation and keys)

The page loads nothing, and its content security policy forbids it to. The policy allows script and style by their
hashes, so text from a model can never run, and Trusted Types ensure that texts are inserted only as text.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from soul.evaluate.numbers.results import Breakdowns, Results
from soul.evaluate.report.markup import Markup, element, join
from soul.evaluate.report.page_parts import Page, filled, index, read, sample_lines, script_of, write_page
from soul.evaluate.report.results_table import (
    names_of,
    reading_notes,
    results_table,
    samples_link,
)
from soul.evaluate.run.run_folder import EvaluationRun
from soul.evaluate.tables import run_table
from soul.evaluate.tables.answers import answers_of
from soul.evaluate.tables.run_table import grouped
from soul.judge.call.usage import Usage, total
from soul.judge.ledger import money
from soul.task_types import Metric

FILE = "report.html"
SCRIPTS = ("store", "elements", "link", "results", "list", "browser", "scene", "sample", "samples", "page")
_SAMPLING = ("reasoning_effort", "temperature", "top_p", "max_output_tokens", "seed")


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
            table=results_table(results, groups, columns),
            notes=reading_notes(results),
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


def overview(run: EvaluationRun, results: Results) -> Markup:
    """The head of the report."""
    policy = run.settings["policy"]
    wanted, finished = sum(run.wanted.values()), len(run.samples)
    rows = "all rows" if run.limit is None else f"{run.limit:,} rows"
    repeats = f", {run.n} samples per row" if run.n > 1 else ""
    facts = [
        ("Endpoint", _address(policy)),
        ("Sampling", _sampling(policy)),
        *run_table.models_by_role(run, results).items(),
        ("Rows", f"{rows} of each set, seed {run.seed}{repeats}"),
        ("Samples", f"{finished:,}" if finished == wanted else f"{finished:,} of {wanted:,}: not finished"),
        ("Last sample", run.ended.strftime("%Y-%m-%d %H:%M UTC")),
        *([("Episodes of", run.settings["episodes_of"])] if "episodes_of" in run.settings else []),
    ]
    listed = [element("div", element("dt", name), element("dd", value)) for name, value in facts]
    return join(
        element("p", "SOUL evaluation", class_="kind"),
        element("h1", run.name),
        element("dl", *listed, class_="facts"),
        _first_numbers(results, run.judge_checks.usage),
        _warnings(results),
        *(element("p", text, class_="note") for text in run_table.cautions(run, results)),
        _settings(run.settings),
    )


def _first_numbers(results: Results, judge_tests: Usage) -> Markup:
    macro, sets = results.macro, list(results.sets.values())
    samples, invalid = sum(s.samples for s in sets), sum(s.invalid for s in sets)
    score, _, interval = run_table.score(macro.mean, macro.interval).partition(" ")
    sets_text = f"{macro.sets}" if macro.sets == macro.of else f"{macro.sets} of {macro.of}"
    name = f"macro average of {sets_text} sets" if macro.of > 1 else next(iter(results.sets), "no set")
    cost = money(total([judge_tests, *(count for s in sets for count in s.usage.values())]))
    share = run_table.invalid_share(invalid, samples, None)
    shown = ((score, f"{name} {interval}".strip()), (share, "without a verdict"), (cost, "policy and judges"))
    tiles = [element("div", element("dd", value), element("dt", label)) for value, label in shown]
    return element("dl", *tiles, class_="tiles")


def _warnings(results: Results) -> Markup | None:
    """Reasons to doubt a score, with links to the samples to check."""
    ordered = {name: results.sets[name] for name in run_table.ordered(list(results.sets))}
    lines = []
    for warning, by_set in grouped(ordered).items():
        links = [join(element("a", name, href=samples_link(name)), f" ({detail})") for name, detail in by_set.items()]
        listed = [join(", " if place else None, link) for place, link in enumerate(links)]
        lines.append(element("p", element("strong", f"{warning.title}: "), *listed, f". {warning.advice}"))
    return element("section", *lines, class_="warnings", aria_label="Warnings") if lines else None


def _settings(settings: Mapping[str, Any]) -> Markup:
    known = {key: value for key, value in settings.items() if value}
    text = json.dumps(known, indent=1, ensure_ascii=False)
    return element("details", element("summary", "Settings"), element("pre", text), class_="settings")


def _address(endpoint: Mapping[str, Any]) -> str:
    """The address of the model, or what was served if the run served it itself."""
    known = {"model", "base_url", *_SAMPLING}
    served = ", ".join(f"{key.replace('_', ' ')} {value}" for key, value in endpoint.items() if key not in known)
    return endpoint["base_url"] or f"served for this run: {served or endpoint['model']}"


def _sampling(endpoint: Mapping[str, Any]) -> str:
    chosen = [f"{key.replace('_', ' ')} {endpoint[key]}" for key in _SAMPLING if endpoint.get(key) is not None]
    return ", ".join(chosen) or "the endpoint's defaults"
