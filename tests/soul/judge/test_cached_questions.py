"""Questions that go through the cache: asked once by everybody, keyed by all that determines the answer.

Failures, and what is sampled, are never kept.
"""

import asyncio
import sqlite3
import subprocess
import sys
import time
from contextlib import contextmanager

import pytest
from pydantic import BaseModel

from soul.judge import Judge
from soul.judge.cache import Cache
from soul.testing import BadRequest, FakeOpenAI, Hang, Json, Refusal, WrongSchema


@pytest.fixture
def path(tmp_path):
    return tmp_path / "folder" / "answers.sqlite"


class Score(BaseModel):
    score: int


class Grade(BaseModel):
    grade: int


@contextmanager
def asking(fake, path, **endpoint):
    judge = Judge.connect(fake.endpoint(structured="json_schema", **endpoint), fake.client())
    judge.cache = Cache(path)
    yield judge
    judge.cache.close()


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
    endpoints += [{"top_p": 0.5}, {"seed": 1}, {"seed": 2}, {"seed": 2, "top_p": 0.5}]
    questions = [
        (Score, "Score.", {"n": 1}, 0),
        (Grade, "Score.", {"n": 1}, 0),
        (Score, "Score!", {"n": 1}, 0),
        (Score, "Score.", {"n": 2}, 0),
        (Score, "Score.", {"n": "1"}, 0),
        (Score, "Score.", {"n": 1}, 1),
    ]
    for _ in range(2):
        for endpoint in [*endpoints, {"max_output_tokens": 99}]:
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


@pytest.mark.parametrize("fault,cause,requests", [(BadRequest(), "bad_request", 1), (Refusal(), "refusal", 2)])
def test_a_failure_is_shared_and_not_kept(path, fault, cause, requests):
    fake = FakeOpenAI([*[fault] * requests, Json({"score": 7})])

    async def main(judge):
        found = await asyncio.gather(*(judge.ask(Score, "Score.", {}) for _ in range(5)), return_exceptions=True)
        assert [failure.cause for failure in found] == [cause] * 5 and len(fake.requests) == requests
        assert (await judge.ask(Score, "Score.", {})).score == 7

    with asking(fake, path) as judge:
        run(main(judge))
    assert len(fake.requests) == requests + 1


def test_only_the_valid_answer_of_a_reask_is_kept(path):
    fake = FakeOpenAI([WrongSchema(), Json({"score": 7})])
    for _ in range(2):
        with asking(fake, path) as judge:
            assert run(judge.ask(Score, "Score.", {})).score == 7
    assert len(fake.requests) == 2


def test_who_is_cancelled_leaves_the_question_to_the_next(path):
    fake = FakeOpenAI(Json({"score": 7}, delay=0.1))

    async def main(judge):
        tasks = [asyncio.create_task(judge.ask(Score, "Score.", {})) for _ in range(6)]
        for number, task in enumerate(tasks[:3]):  # each leads, until he is cancelled
            while len(fake.requests) == number:
                await asyncio.sleep(0.001)
            task.cancel()
        found = await asyncio.gather(*tasks, return_exceptions=True)
        assert [type(each) for each in found] == [asyncio.CancelledError] * 3 + [Score] * 3 and not judge.asking

    with asking(fake, path) as judge:
        run(main(judge))
    assert len(fake.requests) == 4


def test_another_process_is_waited_for_and_taken_over_from_when_it_dies(path):
    fake = FakeOpenAI(Json({"score": 7}))

    async def main(judge):
        other = Cache(path)
        keys = [judge._key(Score, "Score.", {"n": n}, 0) for n in range(2)]
        assert [other.claim(key, 0.5) for key in keys] == ["mine", "mine"]
        first, second = (asyncio.create_task(judge.ask(Score, "Score.", {"n": n})) for n in range(2))
        await asyncio.sleep(0.15)
        assert not fake.requests
        other.put(keys[0], '{"score": 3}')
        assert (await first).score == 3 and not fake.requests
        assert (await second).score == 7 and len(fake.requests) == 1  # nothing came of that claim

    with asking(fake, path) as judge:
        run(main(judge))


def test_turns_of_a_conversation_are_sampled_anew(path):
    fake = FakeOpenAI(Json({"score": 7}))
    with asking(fake, path) as judge:
        for _ in range(3):
            run(judge.chat([{"role": "user", "content": "Hello"}]))
        assert judge.cache._db.execute("SELECT count(*) FROM answers").fetchone() == (0,)
    assert len(fake.requests) == 3 and judge.usage.cache_hits == 0


def test_a_broken_disk_does_not_lose_an_answer_that_was_paid(path):
    fake = FakeOpenAI(Json({"score": 7}, delay=0.05))

    async def main(judge):
        judge.cache._db.execute("PRAGMA query_only = 1")  # every write fails
        return await asyncio.gather(*(judge.ask(Score, "Score.", {}) for _ in range(4)))

    with asking(fake, path) as judge:
        assert [each.score for each in run(main(judge))] == [7] * 4
    assert len(fake.requests) == 1


ASKS = """
import asyncio, sys
from pathlib import Path
from soul.judge import Endpoint, Judge
from soul.judge.cache import Cache
from tests.soul.judge.test_cached_questions import Score

async def main():
    judge = Judge.connect(Endpoint(model="fake", base_url=sys.argv[1], api_key_env=None, structured="json_schema"))
    judge.cache = Cache(Path(sys.argv[2]))
    await asyncio.gather(*(judge.ask(Score, "Score.", {"n": n}) for n in range(3)))

asyncio.run(main())
"""


def test_after_kill_9_the_next_start_asks_at_once(path, caplog):
    """The claims last 300 s; the second start waits for none of them, and has nothing to say about waiting."""

    async def main(judge):
        found = await asyncio.gather(*(judge.ask(Score, "Score.", {"n": n}) for n in range(3)))
        await judge.close()
        return found

    with FakeOpenAI(lambda request: Hang(600) if request.number < 3 else Json({"score": 7})) as fake:
        killed = subprocess.Popen([sys.executable, "-c", ASKS, fake.url, str(path)])
        try:
            while len(fake.requests) < 3:
                assert killed.poll() is None
                time.sleep(0.01)
        finally:
            killed.kill()
            killed.wait()
        judge = Judge.connect(fake.endpoint(structured="json_schema"))
        judge.cache = Cache(path)
        claims = sqlite3.connect(path).execute("SELECT until FROM claims").fetchall()
        assert len(claims) == 3 and all(until > time.time() + 200 for (until,) in claims)
        assert run(main(judge)) == [Score(score=7)] * 3
    assert len(fake.requests) == 6 and "wait" not in caplog.text
