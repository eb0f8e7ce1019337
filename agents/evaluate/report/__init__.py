"""A run as one HTML file that needs nothing else: `write_html`, or `python -m agents.evaluate.report RUN`.

overview.py        the head: model, judges, settings, first numbers
results_table.py   the table, with set_detail.py (what a line shows when opened) and interval_bar.py
packing.py         the samples, as the page carries them
report.html .css   the page; markup.py writes what is put into it
script/            store.js (unpacks them), results.js (the table), browser.js and list.js (samples), sample.js (one),
                   page.js (links and keys)

The page fetches nothing and its policy (CSP) lets it fetch nothing. Its script and its style are allowed by their
hashes, so that nothing a model wrote could ever run, and texts reach the page as text alone (Trusted Types).
"""

from __future__ import annotations

import base64
import hashlib
import os
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from string import Template
from typing import Any

from agents.evaluate import table
from agents.evaluate.breakdown import Breakdowns
from agents.evaluate.report.markup import element, join
from agents.evaluate.report.overview import overview
from agents.evaluate.report.packing import embedded, index, packed, parts, to_json
from agents.evaluate.report.results_table import chooser, notes, results_table
from agents.evaluate.results import Results
from agents.evaluate.run_folder import EvaluationRun

FILE = "report.html"
SCRIPTS = ("store", "results", "list", "sample", "browser", "page")
_HERE = Path(__file__).parent


def html(run: EvaluationRun, results: Results, groups: Breakdowns) -> str:
    """The report.

    Args:
        results: the run's (`results.summarise(run.samples, run.sets)`).
        groups: their `breakdowns`.
    """
    return "".join(_pieces(run, results, groups))


def write_html(run: EvaluationRun, results: Results, groups: Breakdowns) -> Path:
    """Write the report into the run's folder, piece by piece; it is there as a whole, or as it was before.

    Returns:
        The file.
    """
    file = run.folder / FILE
    partial = file.with_suffix(".html.partial")
    with partial.open("w", encoding="utf-8", newline="") as out:
        out.writelines(_pieces(run, results, groups))
    os.replace(partial, file)
    return file


def _pieces(run: EvaluationRun, results: Results, groups: Breakdowns) -> Iterator[str]:
    """The page in pieces; its samples are most of it."""
    by_set: defaultdict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for sample in run.samples:
        by_set[sample["set"]].append(sample)
    names = table.ordered(list(results.sets))
    ordered = [sample for name in names for sample in by_set[name]]
    style, script = _read("report.css"), "\n".join(_read(f"script/{name}.js") for name in SCRIPTS)
    head, tail = _read("report.html").split("$parts\n")
    yield _filled(
        head,
        policy=_policy(style, script),
        title=join(f"{run.name} on SOUL"),
        style=style,
        overview=overview(run, results),
        chooser=chooser(),
        table=results_table(results, groups),
        notes=notes(),
        count=f"{len(ordered):,}",
    )
    starts = []
    for place, (start, body) in enumerate(parts(ordered)):
        starts.append(start)
        yield element("script", body, type="application/gzip", id=f"part-{place}") + "\n"
    known = {
        "model": run.name,
        "sets": [{"name": name, "metric": results.sets[name].headline.name} for name in names],
        "n": run.n,
    }
    yield _filled(tail, known=embedded(known), index=packed(to_json(index(ordered, names, starts))), script=script)


def _filled(template: str, **values: str) -> str:
    text = Template(template).substitute(values)
    return text.encode("utf-8", "replace").decode("utf-8")  # a name may hold half of a surrogate pair


def _read(name: str) -> str:
    return (_HERE / name).read_text(encoding="utf-8")


def _policy(style: str, script: str) -> str:
    """What the page may do: run this script, use this style, and nothing else."""

    def digest(text: str) -> str:
        return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode('utf-8')).digest()).decode('ascii')}'"

    return (
        f"default-src 'none'; script-src {digest(script)}; style-src {digest(style)}; img-src data:; "
        "base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
    )
