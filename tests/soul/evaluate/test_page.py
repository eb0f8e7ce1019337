"""An evaluation as the pages show it: the numbers of results.json, the samples of the journal, while it runs and after.

Promise under test: report.html holds what the server answers, and both hold what the run's other files say.
"""

import json
import re

import pytest

from soul import tasks
from soul.evaluate.outputs import main, write_outputs
from soul.evaluate.page import SHOWN_CHARACTERS, EvaluationView
from soul.evaluate.run.run_folder import EvaluationRun
from soul.evaluate.tables import run_table
from soul.pages.sessions import NoSession
from soul.shown_answers import Answers, answers_of, question_of
from tests.soul.evaluate.finished_run import finished_run, real_run
from tests.soul.evaluate.finished_samples import TOM, numbered, record_of, sample
from tests.soul.evaluate.run.answered import answered, give_hitom_answers
from tests.soul.pages.browser_pages import until
from tests.soul.pages.exported import Exported


def overview_of(run):
    return EvaluationView(run.folder).overview(None)


def plain(value):
    """The value as JSON brings it to the page."""
    return json.loads(json.dumps(value))


def test_a_run_and_its_report_hold_every_number_and_every_sample(tmp_path):
    run = real_run(tmp_path)
    file, results = Exported(run.folder / "report.html"), json.loads((run.folder / "results.json").read_text())
    sets = file.overview()["sets"]
    assert list(sets) == run_table.ordered(list(results["sets"]))
    for name, numbers in results["sets"].items():
        shown = sets[name]
        for key in ("mean", "interval", "bounds", "samples", "invalid", "causes", "contentless", "metrics", "groups"):
            assert shown[key] == numbers[key], (name, key)
        assert shown["metric"].items() >= numbers["metric"].items()
    journal = {(one.set, one.number, one.sample): one for one in run.samples}
    assert len(file.sessions()) == len(journal) == 12
    columns = file.columns()
    for number, record in file.sessions().items():
        kept = journal[record["set"], record["number"], record["sample"]]
        line = json.loads(kept.to_line())
        ours = line.keys() - {"usage", "question", "target"}
        assert {name: record[name] for name in ours} == {name: line[name] for name in ours}
        for role, use in record["usage"].items():
            assert use.get("completion_tokens", 0) == kept.usage[role].completion_tokens
        place = columns["id"].index(number)
        assert columns["file"][place] == kept.set and columns["sample"][place] == kept.sample
        assert columns["draft"][place] == (None if kept.draft.reward is None else round(kept.draft.reward, 6))
        assert columns["cause"][place] == (kept.draft.failure.cause if kept.draft.failure else None)


def test_the_server_answers_what_the_report_holds(tmp_path):
    run = finished_run(tmp_path, numbered([1.0, 0.0, None, 0.5] * 3) + numbered([1.0], "paratomi"))
    write_outputs(run)
    file, view = Exported(tmp_path / "report.html"), EvaluationView(tmp_path)
    overview = {name: value for name, value in view.overview(None).items() if name != "revision"}
    assert plain(overview) == {name: value for name, value in file.overview().items() if name != "revision"}
    assert plain(view.columns(0, None)["columns"]) == file.answers["run/run/index"]["columns"]
    assert {number: plain(view.session(number)) for number in view.columns(0, None)["columns"]["id"]} == file.sessions()
    with pytest.raises(NoSession, match="sample 14 does not exist"):
        view.session(14)
    hits = view.search("IT HUNG", 0)["hits"]
    assert hits == [n for n, one in file.sessions().items() if one["draft"]["failure"]] and len(hits) == 3


def test_a_run_that_goes_on_is_read_again(tmp_path):
    run = finished_run(tmp_path, numbered([1.0, 0.0, 0.25, 0.5]))
    journal = tmp_path / "samples.jsonl"
    lines = journal.read_text().splitlines(keepends=True)
    journal.write_text("".join(lines[:2]) + lines[2][:50])  # the next line is half written
    view = EvaluationView(run.folder)
    first, page = view.overview(None), view.columns(0, None)
    assert ["Samples", "2 of 4: not finished"] in plain(first["facts"])
    assert view.overview(first["revision"]) == {"revision": first["revision"], "unchanged": True, "indexing": None}
    assert not view.columns(2, page["revision"])["columns"]
    journal.write_text("".join(lines[:3]))
    until(lambda: not view.overview(first["revision"]).get("unchanged"))
    news = view.columns(2, page["revision"])
    assert news["reset"] and news["columns"]["id"] == [1, 2, 3] and news["columns"]["draft"] == [1.0, 0.0, 0.25]
    assert view.overview(None)["sets"][TOM]["mean"] == pytest.approx(1.25 / 3)


def test_the_head_says_what_was_evaluated_and_how_far_it_came(tmp_path):
    found = overview_of(finished_run(tmp_path, numbered([1.0, 0.0]), asked=3, n=2))
    facts = dict(found["facts"])
    assert facts["Sampling"] == "reasoning effort low, temperature 0.7" and facts["Samples"] == "2 of 5: not finished"
    assert facts["Rows"] == "100 rows of each set, seed 0, 2 samples per row"
    assert re.fullmatch(r"20\d\d-\d\d-\d\d \d\d:\d\d UTC", facts["Last sample"])
    said = json.dumps(found["facts"])
    assert "by rule alone (hitom)" in said and "gpt-large" not in said  # the judge of CoSER, which is not in this run
    empty = overview_of(finished_run(tmp_path / "empty", [], sets=["hitom", "sotopia"]))
    assert empty["tiles"][0][0] == "macro average of 0 of 2 sets" and empty["sets"]["hitom"]["samples"] == 0


def test_the_question_is_the_field_of_that_name_or_a_labelled_line_or_the_first_line():
    assert question_of({"story": "s", "question": "Where is it?", "scenario": "x"}) == "Where is it?"
    assert question_of({"prompt_text": "A long story.\n\nQuestion: Who knows?\nA. he\nB. she"}) == "Who knows?"
    assert question_of({"question": " ", "intent": "\n Find a lamp.\nCheap."}) == "Find a lamp."
    assert question_of({"prompt": ["no text"], "numbers": 3}) == ""


def test_answers_are_the_tasks_own_short_in_the_list_and_whole_in_the_sample(tmp_path, monkeypatch):
    give_hitom_answers(monkeypatch)
    right, none = answered([1.0, 0.0], ["<answer>b</answer>", "I do not\nknow."])
    played_never = sample(None, 2)
    played_never.draft.seats = None
    other_version = right.model_copy(update={"record": {"question": "Where?"}})
    gold = record_of(TOM, 0)[0]["correct_answer"]
    assert answers_of([right]) == [Answers(record_of(TOM, 0)[0]["question"], f"the {gold}", "B")]
    assert [found.given for found in answers_of([right, none, played_never])] == ["B", None, None]
    assert answers_of([other_version]) == [Answers("Where?", None, None)]
    long = "box " * 100
    monkeypatch.setattr(tasks.load(TOM).__class__, "target", lambda self, row: long)
    view = EvaluationView(finished_run(tmp_path, [right, none, *numbered([0.5], "sotopia")]).folder)
    columns = view.columns(0, None)["columns"]
    assert columns["target"] == [None, *[long[:SHOWN_CHARACTERS]] * 2] and columns["given"] == ["...", "B", None]
    assert [view.session(number)["target"] for number in (2, 3)] == [long, long]


def test_the_command_writes_report_and_table_of_runs(tmp_path, capsys):
    runs = [finished_run(tmp_path / name, numbered([1.0, 0.0])).folder for name in ("one", "two")]
    assert main([str(run) for run in runs]) == 0
    for run in runs:
        assert len(Exported(run / "report.html").sessions()) == len(EvaluationRun.load(run).samples) == 2
        assert (run / "samples.parquet").stat().st_size > 0
    assert main([str(tmp_path)]) == 2 and "no settings.json" in capsys.readouterr().err
