"""A training run as the viewer keeps it: what it reads when, and what it answers while its index is built."""

import threading

import pytest

from ditto.run.run_folder import RunFolder
from soul.errors import RunFailed
from soul.pages.index import SessionIndex
from soul.pages.training_view import TrainingView
from soul.record import SessionRecord
from tests.soul.figures.made_up_runs import training


def test_a_run_with_an_index_opens_without_reading_a_trace(tmp_path, monkeypatch):
    run = training(tmp_path, 0, steps=4)
    TrainingView(run).refresh()
    monkeypatch.setattr(SessionRecord, "from_line", lambda *_: pytest.fail("a line was parsed"))
    opened = TrainingView(run)
    opened.refresh()
    columns = opened.columns(0, None)["columns"]
    assert len(columns["id"]) == 64 and opened.overview(None)["curves"]["all"]["steps"] == [1, 2, 3, 4]
    monkeypatch.undo()
    assert TrainingView(run).session(columns["id"][-1])["step"] == 4  # as the first request
    assert TrainingView(run).search("sell it", 60) == {"hits": [61, 62, 63, 64], "after": None, "share": 1.0}


def test_while_its_index_is_built_a_run_answers_with_what_it_has(tmp_path, monkeypatch):
    run, go_on = training(tmp_path, 0, steps=2), threading.Event()
    refresh = SessionIndex.refresh
    monkeypatch.setattr(SessionIndex, "refresh", lambda *arguments: (go_on.wait(20), refresh(*arguments)))
    opened = TrainingView(run)
    opened.keep_up(wait_s=0.05)
    early = opened.overview(None)
    assert early["indexing"] == 0.0 and early["metrics"]["steps"] == [1, 2] and early["curves"] == {}
    assert opened.columns(0, None)["columns"].get("id", []) == []
    go_on.set()
    opened.keep_up(wait_s=20)
    late = opened.overview(early["revision"])
    assert late["indexing"] is None and late["curves"]["all"]["steps"] == [1, 2]


def test_what_is_wrong_with_a_run_is_said_and_the_rest_is_shown(tmp_path):
    run = training(tmp_path, 0, steps=2)
    (run / "run.json").write_text("{")
    (run / "metrics.jsonl").write_text("no metrics\n")
    opened = TrainingView(run)
    opened.refresh()
    overview = opened.overview(None)
    assert overview["curves"]["all"]["steps"] == [1, 2] and overview["run"] == {} and overview["events"] == []
    assert [problem.partition(" ")[0].partition(",")[0] for problem in overview["problems"]] == [
        str(run / "run.json"),
        str(run / "metrics.jsonl"),
    ]
    with pytest.raises(RunFailed, match="is not built yet"):
        TrainingView(run).ask(lambda connection: None)


def test_events_are_shown_where_they_begin(tmp_path):
    folder = RunFolder(tmp_path)
    for step, lost, alarm in ((1, 0.0, 0.0), (2, 0.01, 1.0), (3, 0.4, 1.0), (4, 0.0, 0.0), (5, 0.0, 1.0)):
        folder.log_metrics(step, {"judge/failure_share": lost, "alarm/length": alarm, "alarm/fall": 0.0})
    events = TrainingView(tmp_path).overview(None)["events"]
    assert [(event["step"], event["kind"], event["text"]) for event in events] == [
        (2, "alarm", "length"),
        (3, "outage", "a judge failed in 40% of the sessions"),
        (5, "alarm", "length"),
    ]
    (tmp_path / "failure.json").write_text('{"cause": "rollout server 0 died", "time": 100.0}')
    ended = {"step": 5, "kind": "outage", "text": "the run ended: rollout server 0 died"}
    assert TrainingView(tmp_path).overview(None)["events"][-1] == ended
    (tmp_path / "run.json").write_text('{"resumed": [{"step": 1, "time": 50.0}, {"step": 3, "time": 150.0}]}')
    steps = [event["step"] for event in TrainingView(tmp_path).overview(None)["events"] if "ended" in event["text"]]
    assert steps == [3]
