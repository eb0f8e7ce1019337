"""The index agrees with the trace files, whatever happened to them since it was built."""

import json
import os
import sqlite3
import threading

import pytest

from ditto.run.run_folder import RunFolder
from soul.files.line_file import write_lines
from soul.pages.index import FILE, SessionIndex, columns_after
from soul.pages.session_row import DIGITS
from soul.pages.sessions import NoSession, places_of, read_line
from soul.record import SessionRecord
from tests.soul.figures.made_up_runs import session, training


@pytest.fixture
def run(tmp_path):
    return training(tmp_path / "run", 0, steps=3)


def opened(run):
    index = SessionIndex(run / "traces")
    index.refresh()
    return index


def columns(index, after=0, known=None):
    return index.read(lambda connection: columns_after(connection, after, known))


def rows(index):
    """(step, live, session, draft) of all rows that the index has."""
    known = columns(index)["columns"]
    return list(zip(*(known[name] for name in ("step", "live", "session", "draft")), strict=True))


def in_files(run):
    """The same, from the finished traces themselves."""
    lines = [line for path in sorted((run / "traces").glob("step_*.jsonl")) for line in path.open("rb")]
    records = [SessionRecord.from_line(line, "") for line in lines]
    return [(record.step, 0, record.session, round(record.draft.reward, DIGITS)) for record in records]


def append(path, text):
    path.parent.mkdir(exist_ok=True)
    with path.open("a") as file:
        file.write(text)


def test_a_half_written_line_waits_for_its_end_and_the_finished_file_takes_its_place(run):
    live = run / "traces" / "live" / "step_000004.77.jsonl"
    first, second = (session("sotopia", 4, number, 0, (0.25 * number, None)) for number in (1, 2))
    line = second.to_line()
    append(live, f"{first.to_line()}\n{line[:100]}")
    index = opened(run)
    assert rows(index)[48:] == [(4, 1, first.session, 0.25)]
    append(live, f"{line[100:]}\n")
    index.refresh()
    assert rows(index)[48:] == [(4, 1, first.session, 0.25), (4, 1, second.session, 0.5)]

    page = columns(index)  # a page that has these rows gets all again
    write_lines(run / "traces" / "step_000004.jsonl", [first.to_line(), second.to_line()])
    index.refresh()  # as the finished file appears, before the live one goes
    assert rows(index) == in_files(run)
    live.unlink()
    index.refresh()
    assert rows(index) == in_files(run)
    news = columns(index, page["columns"]["id"][-1], page["revision"])
    assert news["reset"] and len(news["columns"]["session"]) == 50


def test_a_step_that_a_resumed_run_wrote_again_replaces_the_old_one(run):
    index = opened(run)
    before = rows(index)
    folder = RunFolder(run)
    folder.rewind(1)
    index.refresh()
    assert rows(index) == before[:16]
    folder.write_traces("step", 2, [session("sotopia", 2, 1, 0, (0.125, None))])
    index.refresh()
    assert rows(index) == in_files(run) and rows(index)[16:] == [(2, 0, "sotopia-1_0", 0.125)]


@pytest.mark.parametrize("keep_time", [False, True])
def test_a_file_that_was_changed_in_place_is_read_again(run, keep_time):
    """Also one of the same size and time, if it is another file; and one that begins differently."""
    index = opened(run)
    path = run / "traces" / "step_000002.jsonl"
    stat, text = path.stat(), path.read_text()
    start, _, end = text.rpartition('"number": 11')  # in the last line
    changed = f'{start}"number": 91{end}'
    assert changed != text and len(changed) == len(text)
    if keep_time:
        path.rename(path.with_suffix(".old"))
    path.write_text(changed)
    if keep_time:
        os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    index.refresh()
    known = columns(index)["columns"]["number"]
    assert known.count(91) == 1 and len(known) == 48


def test_packed_files_are_read_like_plain_ones_and_up_to_a_tear(run):
    before = rows(opened(run))
    for path in sorted((run / "traces").glob("step_*.jsonl")):
        write_lines(path, path.read_text(encoding="utf-8").splitlines(), 0.0)
    index = opened(run)
    assert rows(index) == before and not list((run / "traces").glob("*.jsonl"))
    for number in columns(index)["columns"]["id"]:
        (where,) = index.read(lambda connection, number=number: places_of(connection, "s.id = ?", number))
        assert json.loads(read_line(run / "traces", where))["session"]

    last = run / "traces" / where.file
    content = last.read_bytes()
    problems = "SELECT problem FROM files WHERE problem IS NOT NULL"
    last.write_bytes(content[:-1])  # a copy that has not arrived yet
    index.refresh()
    assert rows(index) == before[:-1]
    ((problem,),) = index.read(lambda connection: list(connection.execute(problems)))
    assert problem.startswith(f"{last.name} cannot be read beyond byte {where.offset:,}")
    last.write_bytes(content)
    index.refresh()
    assert rows(index) == before and not index.read(lambda connection: list(connection.execute(problems)))
    changed = bytearray(content)
    changed[where.offset + 30] ^= 255
    last.write_bytes(changed)
    with pytest.raises(NoSession, match="written again"):
        read_line(run / "traces", where)


@pytest.mark.parametrize("damage", ["noise", "half", "empty", "gone", "version"])
def test_a_damaged_index_is_built_again(run, damage):
    path = run / "traces" / FILE
    opened(run)
    if damage == "noise":
        path.write_bytes(b"no database" * 500)
    elif damage == "half":
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    elif damage == "empty":
        path.write_bytes(b"")
    elif damage == "gone":
        path.unlink()
    else:
        with sqlite3.connect(path) as connection:
            connection.execute("PRAGMA user_version = 99")
        connection.close()
    index = opened(run)
    assert rows(index) == in_files(run)
    assert columns(index, after=48, known=1)["reset"]


def test_several_viewers_may_build_one_index_at_once(run):
    (run / "traces" / FILE).write_bytes(b"no database" * 500)
    indexes = [SessionIndex(run / "traces") for _ in range(4)]
    threads = [threading.Thread(target=index.refresh) for index in indexes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for index in indexes:
        assert rows(index) == in_files(run)


def test_where_the_index_cannot_be_written_it_is_temporary_and_says_so(run):
    (run / "traces" / FILE).mkdir()
    index = opened(run)
    assert rows(index) == in_files(run) and "cannot be written" in index.note
    folder = index.path.parent
    assert folder.exists()
    del index
    assert not folder.exists()


def test_a_line_that_is_no_record_is_left_out_and_named(run):
    path = run / "traces" / "step_000002.jsonl"
    lines = path.read_text().splitlines()
    path.write_text("\n".join([lines[0], '{"schema_version": 3}', *lines[1:]]) + "\n")
    index = opened(run)
    assert len(rows(index)) == 48
    large, half, fine = (session("sotopia", 4, number, 0, (0.5, None)) for number in (1, 2, 3))
    large.number, half.file = 2**70, "half \ud83d of a pair"  # SQLite can store neither
    write_lines(run / "traces" / "step_000004.jsonl", [each.to_line() for each in (large, half, fine)])
    index.refresh()
    assert rows(index)[48:] == [(4, 0, fine.session, 0.5)]
    problems = index.read(lambda connection: list(connection.execute("SELECT problem, bad FROM files WHERE bad")))
    (first, one), (second, two) = problems
    assert first.startswith("step_000002.jsonl: line 2 has schema_version 3") and one == 1
    assert "line 2 cannot be stored" in second and two == 2


def test_what_a_row_says(tmp_path):
    """A missing refined episode, failures, a jury that differs, and times."""
    failed = {"stage": "judge", "cause": "timeout", "detail": "late"}
    draft = {"reward": 0.5, "canary": {"judge": "other", "reward": 0.25}, "seconds": {"play": 2.0, "judge": 1.0}}
    draft["started"] = {"play": 100.0, "judge": 103.0}
    facts = {"task": "sotopia", "number": 4, "row": 4, "advantages": {"draft": -1.0, "refined_base": 2.0}}
    record = SessionRecord.model_validate({**facts, "draft": draft, "refined": {"failure": failed}})
    alone = record.model_copy(update={"refined": None, "advantages": {}})
    RunFolder(tmp_path).write_traces("step", 1, [record, alone])
    known = columns(opened(tmp_path))["columns"]
    expected = {
        "step": [1, 1],
        "split": {"values": ["step"], "codes": [0, 0]},
        "task": {"values": ["sotopia"], "codes": [0, 0]},
        "prompt": {"values": [":4"], "codes": [0, 0]},
        "draft": [0.5, 0.5],
        "refined": [None, None],
        "advantage_draft": [-1.0, None],
        "advantage_refined": [2.0, None],
        "cause": {"values": ["timeout", None], "codes": [0, 1]},
        "disagree": [1, 1],
        "seconds": [4.0, 4.0],
        "cost": [0, 0],
    }
    assert {name: known[name] for name in expected} == expected
