"""The report as a file: everything of the run is in it, nothing of it can run, and it asks nobody for anything."""

import base64
import gzip
import hashlib
import json
import math
import re
from html.parser import HTMLParser

import pytest

from soul import tasks
from soul.evaluate.numbers.results import breakdown, breakdowns, summarise
from soul.evaluate.outputs import main
from soul.evaluate.report import page_parts, write_html
from soul.evaluate.report.markup import element, join
from soul.evaluate.tables import run_table
from soul.suites import soul_v1
from tests.soul.evaluate.finished_run import finished_run, real_run
from tests.soul.evaluate.finished_samples import TOM, numbered, sample

HOSTILE = "</script><script>alert(1)</script><!-- <img src=x onerror=alert(1)> \u2028\u2029 \x00 & \" ' \ud83d end"

# Ways for a script to turn text into markup or code, or to fetch something.
SINKS = ("innerHTML", "outerHTML", "insertAdjacent", "document.write", "eval(", "Function(", "fetch(", "import(")


class Page(HTMLParser):
    """What a browser would make of a page: its elements with their attributes, and the text in them."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.elements, self.scripts, self.lines, self._in, self._cell = [], {}, [], None, False
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        if tag in ("script", "style"):
            self._in = dict(attributes).get("id") or dict(attributes).get("type") or tag
            self.scripts[self._in] = ""
        if tag == "tr":
            self.lines.append([])
        if tag in ("td", "th"):
            self.lines[-1].append("")
            self._cell = True

    def handle_endtag(self, tag):
        if tag in ("script", "style"):
            self._in = None
        if tag in ("td", "th", "tr"):
            self._cell = False

    def handle_data(self, data):
        if self._in:
            self.scripts[self._in] += data
        elif self._cell:
            self.lines[-1][-1] += data


def report_of(run):
    found = summarise(run.samples, run.sets)
    return write_html(run, found, breakdowns(run, found)).read_bytes().decode()


def unpacked(text):
    return gzip.decompress(base64.b64decode(text)).decode("utf-8")


def carried(page):
    """The samples that the page carries."""
    parts = [value for key, value in page.scripts.items() if key.startswith("part-")]
    return [json.loads(line) for part in parts for line in unpacked(part).split("\n")]


@pytest.fixture(scope="module")
def everything(tmp_path_factory):
    samples = [
        sample(None if n == 2 else (n % 2) / 2, n, of=name, task=of.task)
        for name, of in soul_v1.SETS.items()
        for n in range(4)
    ]
    return finished_run(tmp_path_factory.mktemp("everything"), samples)


def test_the_table_is_that_of_the_terminal(everything):
    results = summarise(everything.samples, everything.sets)
    page = Page(report_of(everything))
    starts = {line[0]: line for line in reversed(page.lines) if line}
    columns = run_table.columns_of(everything.suite)
    for line in run_table.lines(results, columns):
        name, score, *others = line.cells
        found = starts[name]
        assert found[1] == score and found[3 : 3 + len(others)] == others
        assert tuple(found[-len(columns) :]) == line.published
    names = [line[0] for line in page.lines if line and line[0] in everything.sets]
    assert names == run_table.ordered(everything.sets)
    assert "macro average, 27 sets" in starts and "macro average, paper's 10" in starts


def test_breakdowns_failures_and_metrics_are_behind_their_line(tmp_path):
    samples = numbered([1.0, 0.0, None, 1.0, 1.0, 0.0])
    for number, line in enumerate(samples):
        line.groups = {"order": str(number % 2), "told by": "a <b>stranger</b>"}
    run = finished_run(tmp_path, samples)
    page = Page(report_of(run))
    (first, second) = breakdown(samples, tasks.load(TOM).headline)["order"]
    lines = [line for line in page.lines if line]
    assert ["0", run_table.score(first.mean, first.interval), "", "3", "33.3 % (66.7 to 100.0)"] in lines
    assert ["1", run_table.score(second.mean, second.interval), "", "3", "0 %"] in lines
    assert any(line[0] == "a <b>stranger</b>" for line in lines) and ("b", {}) not in page.elements
    assert ["timeout", "1"] in lines and ["answered", "1"] in lines
    asked = [json.loads(attributes["data-browse"]) for _, attributes in page.elements if "data-browse" in attributes]
    assert {"set": TOM, "cause": "timeout"} in asked and {"set": TOM, "kind": "order", "value": "1"} in asked


def test_the_head_says_what_was_evaluated_and_how_far_it_came(tmp_path):
    run = finished_run(tmp_path, numbered([1.0, 0.0]), asked=3, n=2)
    text = re.sub(r"<[^>]+>", " ", report_of(run).partition("<details")[0])
    for said in ("under-test", "temperature 0.7", "by rule alone (hitom)", "100 rows of each set, seed 0"):
        assert said in text
    assert "gpt-large" not in text  # the judge of CoSER, which is not in this run
    assert "2 of 5: not finished" in text and re.search(r"20\d\d-\d\d-\d\d \d\d:\d\d UTC", text)


def shown(sample):
    """What the page's scripts read of a sample."""
    line = json.loads(sample.to_line())
    names = ("set", "task", "number", "row", "sample", "stamp", "groups", "shortened", "record", "prompts")
    draft = {key: value for key, value in line["draft"].items() if key not in ("base", "episode")}
    return {**{name: line[name] for name in names}, "draft": {**draft, **line["draft"]["episode"]}}


def test_every_sample_is_carried_as_the_journal_has_it(tmp_path):
    run = real_run(tmp_path)
    page = Page(report_of(run))
    kept = {(s["set"], s["number"], s["sample"]): s for s in carried(page)}
    assert len(kept) == len(run.samples) == 12
    for line in run.samples:
        found = kept[line.set, line.number, line.sample]
        journal = {key: value for key, value in found.items() if key not in ("target", "given")}
        assert {**journal, "usage": None} == {**shown(line), "usage": None}
        for role, use in found["usage"].items():
            assert all(line.usage[role].to_json()[key] == value for key, value in use.items())
            assert use.get("completion_tokens", 0) == line.usage[role].completion_tokens


def test_the_index_and_the_parts_agree(tmp_path, monkeypatch):
    monkeypatch.setattr(page_parts, "PART_CHARACTERS", 2500)
    run = finished_run(tmp_path, numbered([1.0, 0.0, None, 0.5] * 3) + numbered([1.0], "paratomi"))
    page = Page(report_of(run))
    index = json.loads(unpacked(page.scripts["index"]))
    lines = carried(page)
    parts = [key for key in page.scripts if key.startswith("part-")]
    sizes = [len(unpacked(page.scripts[part]).split("\n")) for part in parts]
    assert len(parts) > 2 and index["starts"] == [sum(sizes[:place]) for place in range(len(sizes))]
    names = [known["name"] for known in json.loads(page.scripts["known"])["sets"]]
    for place, line in enumerate(lines):
        assert (names[index["set"][place]], index["number"][place]) == (line["set"], line["number"])
        assert index["reward"][place] == line["draft"]["reward"]
        assert index["cause"][place] == (None if line["draft"]["valid"] else "timeout")


def test_hostile_text_is_text(tmp_path):
    lines = [sample(1.0, 0, answer=HOSTILE, groups={HOSTILE: HOSTILE}, metrics={HOSTILE: 1.0}), sample(0.0, 1)]
    lines[0].draft.critique = HOSTILE
    lines[0].record = {HOSTILE: HOSTILE}
    run = finished_run(tmp_path, lines, policy={"model": HOSTILE, "base_url": HOSTILE})
    text = report_of(run)
    page, plain = Page(text), Page(report_of(finished_run(tmp_path / "plain", numbered([1.0, 0.0]))))
    tags = [tag for tag, _ in page.elements]
    for tag in ("script", "img", "b", "style", "meta", "link"):
        assert tags.count(tag) == [name for name, _ in plain.elements].count(tag)
    assert "alert(1)</script>" not in text and text.encode("utf-8")
    (kept,) = (line for line in carried(page) if line["number"] == 0)
    assert kept["draft"]["seats"]["policy"][0]["content"] == HOSTILE == kept["draft"]["critique"]
    assert kept["record"] == {HOSTILE: HOSTILE}
    assert json.loads(page.scripts["known"])["model"] == HOSTILE


def test_numbers_that_a_browser_cannot_hold_are_texts():
    value = {"nan": math.nan, "inf": [-math.inf], "big": 2**60 + 1, "fine": 2**53, "flag": True}
    assert json.loads(page_parts.to_json(value)) == {
        "nan": "nan",
        "inf": ["-inf"],
        "big": "1152921504606846977",
        "fine": 2**53,
        "flag": True,
    }


def test_the_page_is_complete_and_may_do_nothing_else(everything):
    text = report_of(everything)
    page = Page(text)
    for tag, attributes in page.elements:
        sources = [attributes[key] for key in ("src", "srcset", "data", "poster", "action") if key in attributes]
        assert not sources and not [key for key in attributes if key.startswith("on") or key == "style"], tag
        if tag == "link":
            assert attributes["href"] == "data:,"
    (policy,) = (a["content"] for _, a in page.elements if a.get("http-equiv") == "Content-Security-Policy")
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert rules["default-src"] == "'none'" and "unsafe" not in policy and "connect-src" not in rules
    for rule, content in (("script-src", page.scripts["module"]), ("style-src", page.scripts["style"])):
        digest = base64.b64encode(hashlib.sha256(content.encode("utf-8")).digest()).decode()
        assert rules[rule] == f"'sha256-{digest}'"
    assert "url(" not in page.scripts["style"] and "@import" not in page.scripts["style"]


def test_a_run_without_samples_or_with_a_set_of_ones_own_has_a_report(tmp_path):
    empty = finished_run(tmp_path / "empty", [], sets=["hitom", "sotopia"])
    assert "macro average of 0 of 2 sets" in report_of(empty)
    mine = finished_run(tmp_path / "mine", numbered([1.0, 0.0], "a/b ü", task=TOM))
    assert [known["name"] for known in json.loads(Page(report_of(mine)).scripts["known"])["sets"]] == ["a/b ü"]


def test_markup_escapes_all_that_it_did_not_make():
    made = element("b", "<i>", element("i", "&"), title='"<', hidden=True, id=None)
    assert made == '<b title="&quot;&lt;" hidden>&lt;i&gt;<i>&amp;</i></b>'
    assert join("<", None, element("br")) == "&lt;<br></br>"


def test_the_command_writes_report_and_table_of_runs(tmp_path, capsys):
    runs = [finished_run(tmp_path / name, numbered([1.0, 0.0])).folder for name in ("one", "two")]
    assert main([str(run) for run in runs]) == 0
    for run in runs:
        assert (run / "report.html").read_text(encoding="utf-8").startswith("<!doctype html>")
        assert (run / "samples.parquet").stat().st_size > 0
    assert main([str(tmp_path)]) == 2 and "no settings.json" in capsys.readouterr().err
