"""Answers on disk, and the questions that go through them.

Promise under test: a question is asked once by everybody, keyed by all that determines the answer; what was put is
there after every crash; failures, and what is sampled, are never kept. A file that cannot be used says so before a
run, and a disk that fills up in the middle costs money only.
"""

import asyncio
import sqlite3
import subprocess
import sys
from contextlib import contextmanager

import pytest
from pydantic import BaseModel

from soul.errors import BadCache, JudgeFailure
from soul.judge import Judge
from soul.judge.cache import Cache
from soul.testing import BadRequest, FakeOpenAI, Json, WrongSchema

KEY = b"k" * 32


@pytest.fixture
def path(tmp_path):
    return tmp_path / "folder" / "answers.sqlite"


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


class Score(BaseModel):
    score: int


class Grade(BaseModel):
    grade: int


@contextmanager
def asking(fake, path, **endpoint):
    judge = Judge.connect(fake.endpoint(structured="json_schema", **endpoint), fake.connection())
    judge.endpoint_client.cache = cache = Cache(path)
    yield judge
    cache.close()


def run(main):
    return asyncio.run(asyncio.wait_for(main, 30))


def test_equal_questions_asked_at_once_or_later_cost_one_request(path):
    fake = FakeOpenAI(Json({"score": 7}, delay=0.05))

    async def at_once(judge):
        views = [judge.scope() for _ in range(20)]
        found = await asyncio.gather(*(view.ask(Score, "Score.", {"a": 1, "b": 2}) for view in views))
        found.append(await views[0].ask(Score, "Score.", {"b": 2, "a": 1}))
        return found, sum(view.usage.requests for view in views), sum(view.usage.cache_hits for view in views)

    with asking(fake, path) as judge:
        assert run(at_once(judge)) == ([Score(score=7)] * 21, 1, 20)
    with asking(fake, path) as judge:  # another process, a day later
        assert run(at_once(judge)) == ([Score(score=7)] * 21, 0, 21)
    assert len(fake.requests) == 1


def test_whatever_determines_the_answer_is_in_the_key(path):
    def answer(request):
        return Json({request.body["response_format"]["json_schema"]["name"].lower(): 1})

    fake, asked = FakeOpenAI(answer), 0
    endpoints = [{}, {"model": "b"}, {"base_url": "http://b/v1"}, {"reasoning_effort": "low"}, {"temperature": 0.5}]
    endpoints += [{"top_p": 0.5}, {"seed": 1}, {"seed": 2}, {"max_output_tokens": 99}]
    questions = [
        (Score, "Score.", {"n": 1}, 0),
        (Grade, "Score.", {"n": 1}, 0),
        (Score, "Score!", {"n": 1}, 0),
        (Score, "Score.", {"n": 2}, 0),
        (Score, "Score.", {"n": "1"}, 0),
        (Score, "Score.", {"n": 1}, 1),
    ]
    for _ in range(2):
        for endpoint in endpoints:
            with asking(fake, path, **endpoint) as judge:
                for schema, instructions, data, sample in questions:
                    asked += 1
                    assert isinstance(run(judge.ask(schema, instructions, data, sample=sample)), schema)
    assert not fake.errors and len(fake.requests) == asked / 2


def test_answers_from_before_top_p_and_seed_were_in_the_key_stay_valid(path):
    fake = FakeOpenAI(Json({"score": 7}))
    with asking(fake, path, base_url="http://judge.invalid/v1") as judge:
        run(judge.ask(Score, "Score.", {"n": 1}))
    with sqlite3.connect(path) as file:
        (key,) = file.execute("SELECT key FROM answers").fetchone()
    assert key.hex() == "c9c29af3a7f6a56e02f1b3077ed7236e1d86f2856d79162159d5c2312aef8339"


@pytest.mark.parametrize(
    "fault,cause,requests", [(BadRequest(), "bad_request", 1), (Json({"other": 1}, delay=0.05), "invalid", 2)]
)
def test_a_failure_is_shared_and_not_kept(path, fault, cause, requests):
    fake = FakeOpenAI([*[fault] * requests, Json({"score": 7})])

    async def main(judge):
        found = await asyncio.gather(*(judge.ask(Score, "Score.", {}) for _ in range(5)), return_exceptions=True)
        assert [failure.cause for failure in found] == [cause] * 5 and len(fake.requests) == requests
        assert (await judge.ask(Score, "Score.", {})).score == 7

    with asking(fake, path) as judge:
        run(main(judge))
    assert len(fake.requests) == requests + 1


def test_who_is_cancelled_leaves_the_question_to_the_next(path):
    fake = FakeOpenAI(Json({"score": 7}, delay=0.1))

    async def main(judge):
        tasks = [asyncio.create_task(judge.ask(Score, "Score.", {})) for _ in range(6)]
        for number, task in enumerate(tasks[:3]):  # each leads, until he is cancelled
            while len(fake.requests) == number:
                await asyncio.sleep(0.001)
            task.cancel()
        found = await asyncio.gather(*tasks, return_exceptions=True)
        assert [type(each) for each in found] == [asyncio.CancelledError] * 3 + [Score] * 3
        assert not judge.endpoint_client.cache.asking

    with asking(fake, path) as judge:
        run(main(judge))
    assert len(fake.requests) == 4


def test_an_answer_in_the_file_that_does_not_fit_the_schema_is_asked_for_anew(path):
    fake = FakeOpenAI([WrongSchema(), WrongSchema(), Json({"score": 7})])
    with asking(fake, path) as judge:
        with pytest.raises(JudgeFailure, match="invalid"):
            run(judge.ask(Score, "Score.", {}))
        assert judge.usage.reasks == 1
        assert run(judge.ask(Score, "Score.", {})).score == 7 and judge.usage.cache_hits == 0
        assert run(judge.ask(Score, "Score.", {})).score == 7 and judge.usage.cache_hits == 1
    assert len(fake.requests) == 3


def test_turns_of_a_conversation_are_sampled_anew(path):
    fake = FakeOpenAI(Json({"score": 7}))
    with asking(fake, path) as judge:
        for _ in range(3):
            run(judge.chat([{"role": "user", "content": "Hello"}]))
        assert judge.endpoint_client.cache._db.execute("SELECT count(*) FROM answers").fetchone() == (0,)
    assert len(fake.requests) == 3 and judge.usage.cache_hits == 0


ANSWERS = "SELECT key, text FROM answers"
ASKS = """
import asyncio, sys
from pathlib import Path
from soul.judge import Gateway, GatewaySettings
from tests.soul.judge.test_cache import Score

async def main():
    judge = {"model": "fake", "base_url": sys.argv[1], "api_key_env": "none", "structured": "json_schema"}
    async with Gateway.connect(GatewaySettings.from_sections({"judge": judge}), Path(sys.argv[2])) as gateway:
        await asyncio.gather(*(gateway.judge.ask(Score, "Score.", {"n": n}) for n in range(60)))
        print(gateway.judge.usage.requests)

asyncio.run(main())
"""


def test_after_kill_9_no_question_whose_answer_was_read_is_paid_again(tmp_path):
    """The process is killed when so many answers are in its file; the next start asks only what is not."""
    with FakeOpenAI(lambda request: Json({"score": request.number}, delay=0.01 * request.number)) as fake:
        command = [sys.executable, "-c", ASKS, fake.url, str(tmp_path)]
        killed = subprocess.Popen(command)
        try:
            while len(stored(tmp_path)) < 25:
                assert killed.poll() is None
        finally:
            killed.kill()
            killed.wait()
        before = stored(tmp_path)
        again = subprocess.run(command, check=True, capture_output=True)
        assert int(again.stdout) == 60 - len(before)
        assert before.items() <= stored(tmp_path).items() and len(stored(tmp_path)) == 60


def stored(folder):
    """The answers in the file by key."""
    try:
        return {k: v for file in folder.glob("*.sqlite") for k, v in sqlite3.connect(file).execute(ANSWERS)}
    except sqlite3.OperationalError:  # it is being made
        return {}
