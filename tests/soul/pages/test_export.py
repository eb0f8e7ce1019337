"""Runs as files: all numbers, the texts of telling sessions or of all samples, and nothing that could run or ask."""

import base64
import hashlib
import json
import math

import pytest

from ditto.run.run_folder import RunFolder
from soul.errors import BadSettings
from soul.evaluate.page import EvaluationView
from soul.pages import page as page_module
from soul.pages.export import export, write_run_report, write_site
from soul.pages.page import to_json
from soul.record import Failure
from tests.soul.evaluate.finished_run import finished_run
from tests.soul.evaluate.finished_samples import numbered
from tests.soul.figures.made_up_runs import session, training
from tests.soul.pages import invented_run
from tests.soul.pages.exported import Exported
from tests.soul.pages.hostile_samples import HOSTILE, lines


def test_an_export_has_all_numbers_and_the_texts_of_the_telling_sessions(tmp_path, monkeypatch):
    monkeypatch.setattr(page_module, "PART_CHARACTERS", 9000)
    run = training(tmp_path / "run", 0, steps=6)
    RunFolder(run).write_traces("step", 7, [session("sotopia", 7, 1, 0, (0.75, 0.8), "Half \ud800 and </script>.")])
    file = Exported(write_run_report(run, tmp_path / "new" / "run.html"))
    columns, sessions = file.columns(), file.sessions()
    assert columns["step"] == [step for step in range(1, 7) for _ in range(16)] + [7]
    for number, record in sessions.items():
        place = columns["id"].index(number)
        assert columns["session"][place] == record["session"]
        assert columns["draft"][place] == pytest.approx(record["draft"]["reward"], abs=1e-6)
    assert record["draft"]["seats"]["policy"][1]["content"] == "Half \ud800 and </script>."
    assert len(file.sizes) > 2 and sum(file.sizes) == len(sessions)
    curves, metrics = file.overview()["curves"], file.overview()["metrics"]
    assert curves["all"]["steps"] == list(range(1, 8)) and metrics["steps"] == list(range(1, 7))


def test_the_report_of_a_run_has_the_telling_sessions_of_each_step(tmp_path):
    """Improved, hurt and failed ones, at most three of each; without refined answers the best and the worst drafts."""
    gains = [0.1, 0.4, 0.2, 0.3, 0.0, -0.1, -0.3]
    refined = [session("sotopia", 1, k, 0, (0.5, 0.5 + gain)) for k, gain in enumerate(gains)]
    failed = session("sotopia", 1, 7, 0, (0.5, None)).model_copy(
        update={"feedback_failure": Failure("feedback", "timeout", "late")}
    )
    plain = [session("sotopia", 2, k, 0, (0.1 * k, None)) for k in range(9)]
    folder = RunFolder(tmp_path / "run")
    folder.write_traces("step", 1, [*refined, failed])
    folder.write_traces("step", 2, plain)
    file = Exported(write_run_report(tmp_path / "run"))
    assert [(one["step"], one["number"]) for one in file.sessions().values()] == [
        *[(1, k) for k in (1, 2, 3, 5, 6, 7)],
        *[(2, k) for k in (0, 1, 2, 6, 7, 8)],
    ]
    columns = file.columns()
    assert len(columns["id"]) == 17 and len(file.sessions()) == 12  # the numbers of all, the texts of the telling ones
    pairs = [(a, b) for a, b in zip(columns["draft"], columns["refined"], strict=True) if b is not None]
    assert [sum(b > a for a, b in pairs), sum(b < a for a, b in pairs)] == [4, 2] and len(pairs) == 7


@pytest.fixture(scope="module")
def outputs(tmp_path_factory):
    """A folder with an evaluation and a training, both with hostile texts."""
    root = tmp_path_factory.mktemp("outputs")
    invented_run.training(root / "runs" / "a&b", 2)
    invented_run.add_hostile(root / "runs" / "a&b", 2)
    finished_run(root / "base", lines(), policy={"model": HOSTILE, "base_url": HOSTILE})
    return root


def test_a_site_has_a_page_for_each_run_and_one_that_leads_to_them(outputs, tmp_path):
    first, *files = write_site(outputs, tmp_path / "site")
    listed = Exported(first).answers["folders"]["folders"]
    assert first.name == "index.html" and {one["href"] for one in listed} == {file.name for file in files}
    assert {one["path"]: one["kind"] for one in listed} == {"base": "evaluation", "runs/a&b": "training"}
    pages = {one["path"]: Exported(first.parent / one["href"]) for one in listed}
    assert pages["base"].sessions().keys() == set(EvaluationView(outputs / "base").columns(0, None)["columns"]["id"])
    assert pages["runs/a&b"].overview()["curves"]["all"]["steps"] == [1, 2]


@pytest.mark.parametrize("name", ["base", "runs/a&b"])
def test_a_file_is_complete_and_may_do_nothing_else(outputs, tmp_path, name):
    """Hostile texts are in it, as data alone: there are the elements of any other page."""
    file = Exported(export(outputs / name, tmp_path / "x.html"))
    plain = finished_run(tmp_path / "plain", numbered([1.0, 0.0]))
    tags = [tag for tag, _ in file.elements if tag != "script"]
    assert tags == [tag for tag, _ in Exported(export(plain.folder, tmp_path / "y.html")).elements if tag != "script"]
    kinds = {attributes["type"] for tag, attributes in file.elements if tag == "script"}
    assert kinds == {"application/gzip", "application/json", "module"}
    assert "alert(1)</script>" not in file.text
    assert any(
        one["record"] == {HOSTILE: HOSTILE} and one["draft"]["critique"] == HOSTILE for one in file.sessions().values()
    )
    for tag, attributes in file.elements:
        sources = [attributes[key] for key in ("src", "srcset", "data", "poster", "action") if key in attributes]
        assert not sources and not [key for key in attributes if key.startswith("on") or key == "style"], tag
        assert tag != "link" or attributes["href"] == "data:,"
    (policy,) = (a["content"] for _, a in file.elements if a.get("http-equiv") == "Content-Security-Policy")
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert rules["default-src"] == "'none'" and "unsafe" not in policy and "connect-src" not in rules
    assert rules["require-trusted-types-for"] == "'script'" and rules["trusted-types"] == "'none'"
    for rule, content in (("script-src", file.scripts["module"]), ("style-src", file.scripts["style"])):
        digest = base64.b64encode(hashlib.sha256(content.encode("utf-8")).digest()).decode()
        assert rules[rule] == f"'sha256-{digest}'"
    assert "url(" not in file.scripts["style"] and "@import" not in file.scripts["style"]


def test_numbers_that_a_browser_cannot_hold_are_texts():
    value = {"nan": math.nan, "inf": [-math.inf], "big": 2**60 + 1, "fine": 2**53, "flag": True}
    known = {"nan": "NaN", "inf": ["-Infinity"], "big": "1152921504606846977", "fine": 2**53, "flag": True}
    assert json.loads(to_json(value)) == known


def test_the_folder_of_an_export_has_one_run(tmp_path):
    with pytest.raises(BadSettings, match="there is no training run or evaluation"):
        export(tmp_path, tmp_path / "x.html")
    _, second = (training(tmp_path / "runs" / name, 0, steps=1) for name in ("a", "b"))
    assert Exported(export(second, tmp_path / "x.html")).columns()["step"] == [1] * 16
    with pytest.raises(BadSettings, match=r"pass the folder of one, or --site: runs/a, runs/b\."):
        export(tmp_path, tmp_path / "x.html")
