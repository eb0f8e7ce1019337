"""Forward distillation, held against what the driver itself gave the seats as their base context."""

import asyncio
import json

import pyarrow.parquet as pq
import pytest

from sft.distill.__main__ import main
from sft.distill.sources import RunTraces
from soul import examples
from soul.examples.__main__ import write
from soul.examples.contract import LESSON, _critical
from soul.files.line_file import write_lines
from soul.record import SessionRecord
from soul.session import RefineSettings, run_session
from soul.testing import FakeOpenAI, fake_gateway, scripted_players


def played(name, number, better=True):
    """A session in which the refined episode is better than the draft (or worse); and its seats."""
    example = examples.load(name)
    row = example.row(number)
    good, bad = example.oracle(row), example.contrarian(row)

    def players(context):
        return scripted_players(good if (context == "feedback") == better else bad)(context)

    gateway = fake_gateway(FakeOpenAI(_critical(LESSON)), max_attempts=1, max_reasks=0)
    return asyncio.run(run_session(example.task, row, players, gateway, RefineSettings(max_feedback_chars=10_000)))


def traced(folder, name, count=3, **how):
    """A run's folder with the traces of these sessions, as the trainer writes them."""
    file = folder / f"{name}.parquet"
    write([name], count, file)
    sessions = [played(name, number, **how) for number in range(count)]
    records = [session.to_record(str(file), number) for number, session in enumerate(sessions)]
    path = folder / "run" / "traces" / "step_000004.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as out:
        out.writelines(record.model_copy(update={"model_version": 4}).to_line() + "\n" for record in records)
    return folder / "run", sessions


def distil(tmp_path, run, *more, code=0):
    words = ["--out", str(tmp_path / "out"), "--from-traces", str(run), "--val-share", "0", *more]
    assert main(words) == code
    return pq.read_table(tmp_path / "out" / "train.parquet").to_pylist() if code == 0 else []


@pytest.mark.parametrize("name", examples.names())
def test_the_base_context_is_what_the_seat_was_given_as_such(name, tmp_path):
    for number in range(4):
        session = played(name, number)
        assert session.refined is not None and session.refined.episode is not None and session.feedback
        record = SessionRecord.from_line(session.to_record().to_line(), "trace")
        found = RunTraces(tmp_path).conversations(record)
        assert found.keys() == record.refined.seats.keys()
        for seat, player in session.refined.players.seats.items():
            messages, base = player.heard[-1]
            assert base is not None and found[seat][: len(base)] == base and messages != base
            assert found[seat][len(base)]["role"] == "assistant"
            assert session.feedback not in json.dumps([m for m in found[seat] if m["role"] != "assistant"])
        assert RunTraces(tmp_path, with_feedback=True).conversations(record) == record.refined.seats


@pytest.mark.parametrize("name, seats", [("hitom", 1), ("sotopia", 1), ("mirrorbench", 1), ("coser", 2)])
def test_refined_answers_that_are_better_become_rows(name, seats, tmp_path):
    run, sessions = traced(tmp_path, name)
    rows = distil(tmp_path, run)
    assert len(rows) == seats * len({row["row"] for row in rows}) and {row["row"] for row in rows} == {0, 1, 2}
    for row in rows:
        session = sessions[row["row"]]
        assert row["reward"] == session.refined.verdict.reward > session.draft.verdict.reward
        assert (row["origin"], row["context"], row["expert"]) == ("trace", "base", str(run))
        assert row["fingerprint"] == "model version 4" and row["prompts"] == list(session.prompts)
        said = [m["content"] for m in session.refined.episode.seats[row["seat"]] if m["role"] == "assistant"]
        assert [m["content"] for m in row["messages"] if m["role"] == "assistant"] == said
        assert session.feedback not in json.dumps(row["messages"])
    for row in distil(tmp_path, run, "--with-feedback"):
        assert sessions[row["row"]].feedback in "".join(m["content"] for m in row["messages"])
        assert row["context"] == "feedback"


def test_refined_answers_that_are_not_better_are_not(tmp_path, capsys):
    run, sessions = traced(tmp_path, "sotopia", better=False)
    assert all(s.refined.verdict.reward < s.draft.verdict.reward for s in sessions)
    distil(tmp_path, run, code=1)
    assert "sotopia: none of its 3 samples is kept (" in capsys.readouterr().err


def test_the_margin_is_over_the_draft(tmp_path):
    run, sessions = traced(tmp_path, "sotopia")
    gains = [s.refined.verdict.reward - s.draft.verdict.reward for s in sessions]
    middle = sorted(gains)[1]
    kept = {row["row"] for row in distil(tmp_path, run, "--margin", str(middle))}
    assert kept == {number for number, gain in enumerate(gains) if gain >= middle - 1e-9} and len(kept) >= 2
    distil(tmp_path, run, "--margin", str(max(gains) + 0.01), code=1)


def test_rows_of_an_evaluation_stay_out_and_a_lost_file_is_named(tmp_path, capsys):
    run, _ = traced(tmp_path, "hitom")
    write(["hitom"], 1, tmp_path / "eval.parquet")
    assert {row["row"] for row in distil(tmp_path, run, "--not-in", str(tmp_path / "eval.parquet"))} == {1, 2}
    (tmp_path / "hitom.parquet").unlink()
    assert len(distil(tmp_path, run)) == 3
    distil(tmp_path, run, "--not-in", str(tmp_path / "eval.parquet"), code=2)
    assert "--not-in cannot be checked" in capsys.readouterr().err


def test_packed_traces_give_the_same_rows(tmp_path):
    run, _ = traced(tmp_path, "hitom")
    rows = distil(tmp_path, run)
    (path,) = (run / "traces").iterdir()
    packed = write_lines(path, path.read_text(encoding="utf-8").splitlines(), 0.0)
    assert [packed] == list((run / "traces").iterdir()) == RunTraces(run).files
    assert len(rows) == 3 and distil(tmp_path / "again", run) == rows
