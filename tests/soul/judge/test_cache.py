"""Answers on disk.

Promise under test: what was put is there after every crash, also when several processes write; the file stays near its
limit and keeps what is used; a file that cannot be used says so before a run, and a disk that fills up in the middle
costs money only. The key holds all that determines an answer.
"""

import json
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import contextmanager
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import soul.judge.cache
from soul.errors import BadCache
from soul.judge.cache import Cache, key_of

KEY = b"k" * 32


@pytest.fixture
def path(tmp_path):
    return tmp_path / "folder" / "answers.sqlite"


@pytest.fixture
def clock(monkeypatch):
    """The time of day as the cache sees it."""
    fake = SimpleNamespace(now=1e9, time=lambda: fake.now, monotonic=time.monotonic, sleep=time.sleep)
    monkeypatch.setattr(soul.judge.cache, "time", fake)
    return fake


def healthy(path):
    return sqlite3.connect(path).execute("PRAGMA integrity_check").fetchone()[0] == "ok"


# --- one process


@settings(deadline=None)
@given(st.text())
def test_any_text_comes_back_as_it_was(tmp_path_factory, text):
    cache = Cache(tmp_path_factory.getbasetemp() / "texts.sqlite")
    cache.put(KEY, text)
    cache.close()
    assert Cache(cache.path).get(KEY) == text


@pytest.mark.parametrize("per_run,writes", [(1500, 3000), (20, 1000)])  # a short run writes too few to look at the size
def test_the_file_stays_near_its_limit_and_keeps_what_is_used(path, clock, per_run, writes):
    limit, most, written = 0.4e6, 0.4e6 + 256 * 2000, 0
    while written < writes:
        cache = Cache(path, max_mb=limit / 1e6)
        for _ in range(per_run):
            clock.now += 120
            cache.put(b"%d" % written, "x" * 1000)
            if written % 20 == 0:
                assert cache.get(b"0") is not None  # wanted time and again
            written += 1
        assert cache.size() < most
        cache.close()
    assert path.stat().st_size < most and healthy(path)
    cache = Cache(path, max_mb=limit / 1e6)
    kept = [number for number in range(written) if cache.get(b"%d" % number) is not None]
    assert len(kept) > 0.7 * limit / 1500  # no more went than had to
    assert kept[0] == 0 and kept[1:] == list(range(written - len(kept) + 1, written))  # the oldest, but for the used


# --- what cannot be used


def test_a_file_that_is_something_else_says_so(path):
    path.parent.mkdir()
    path.write_text("questions and answers\n" * 100)
    with pytest.raises(BadCache) as error:
        Cache(path)
    assert all(part in str(error.value) for part in (str(path), "Remove the file", "judge.cache_dir"))
    assert path.read_text().startswith("questions")


def test_a_disk_that_fills_up_costs_money_and_not_the_run(path, caplog):
    cache = Cache(path)
    cache.put(KEY, "before")
    pages = cache._db.execute("PRAGMA page_count").fetchone()[0]
    cache._db.execute(f"PRAGMA max_page_count = {pages + 2}")
    for number in range(40):
        key = b"%d" % number
        assert cache.get(key) is None
        cache.put(key, "x" * 100_000)
    assert cache.get(KEY) == "before"
    failed = [record.getMessage() for record in caplog.records if " fails" in record.getMessage()]
    assert [str(path) in message and "full" in message for message in failed] == [True]
    cache._db.execute(f"PRAGMA max_page_count = {pages + 1000}")  # room again
    cache.put(b"after", "after")
    assert cache.get(b"after") == "after"


def test_an_answer_that_cannot_be_read_is_asked_for_again(path):
    cache = Cache(path)
    cache._db.execute("INSERT INTO answers VALUES (?, CAST(? AS TEXT), ?)", (KEY, b"\xff\xfe", time.time()))
    assert cache.get(KEY) is None
    cache.put(KEY, "text")
    assert cache.get(KEY) == "text"


# --- several processes

WORKER = """
import importlib.util, sys, time
from pathlib import Path
spec = importlib.util.spec_from_file_location("cache", sys.argv[1])  # without the package: ten times faster
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
me = int(sys.argv[3])
print("ready", flush=True)
sys.stdin.readline()
cache = module.Cache(Path(sys.argv[2]))
"""


@contextmanager
def workers(path, script, count):
    """Processes that run the script, with `cache` and `me`, from the same moment on."""
    arguments = [sys.executable, "-c", WORKER + script, soul.judge.cache.__file__, str(path)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "bufsize": 1}
    started = [subprocess.Popen([*arguments, str(number)], **pipes) for number in range(count)]
    try:
        for worker in started:
            assert worker.stdout.readline() == "ready\n"
        for worker in started:
            worker.stdin.write("go\n")
        yield started
    finally:
        for worker in started:
            worker.kill()
            worker.communicate()


def test_a_process_that_is_killed_while_it_writes_loses_no_answer_that_it_had(path):
    script = """
number = 0
while True:
    key = b"%d %d" % (me, number)
    cache.put(key, "x" * (number % 5000))
    print(number, flush=True)
    number += 1
"""
    for lines in (3, 150, 400):
        path = path.with_name(f"killed after {lines}")
        with workers(path, script, 2) as (killed, other):
            done = [killed.stdout.readline() for _ in range(lines)]
            killed.send_signal(signal.SIGKILL)
            done += killed.communicate()[0].splitlines()
            other.stdout.readline()
        cache, last = Cache(path), int([line for line in done if line.strip().isdigit()][-1])
        assert all(cache.get(b"0 %d" % number) == "x" * (number % 5000) for number in range(last + 1))
        cache.put(KEY, "and it goes on")
        assert healthy(path)


# --- the key

ANY_CHARACTER = st.characters(exclude_categories=())  # halves of surrogate pairs too
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(ANY_CHARACTER),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


def shuffled(value):
    if isinstance(value, dict):
        return {key: shuffled(value[key]) for key in reversed(value)}
    return [shuffled(item) for item in value] if isinstance(value, list) else value


@given(values, values)
def test_keys_are_equal_where_the_data_is(one, two):
    assert key_of({"data": one}) == key_of({"data": shuffled(one)})
    same = json.dumps(one, sort_keys=True) == json.dumps(two, sort_keys=True)
    assert (key_of({"data": one}) == key_of({"data": two})) == same
