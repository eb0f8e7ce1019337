"""The fake endpoint itself: what other tests conclude from it must hold over HTTP and in process alike."""

import asyncio
import json
import urllib.error
import urllib.request

import openai
import pytest

import agents.testing
from agents.choice import Critique
from agents.errors import JudgeFailure
from agents.judge import Judge
from agents.testing import (
    ChatRequest,
    Empty,
    FakeOpenAI,
    Json,
    ServerError,
    Text,
    fake_judge,
    scripted_players,
    sometimes,
)

GOOD = Json({"critique": "Look again."})


def ask_twice(judge: Judge) -> tuple[str, str]:
    async def run() -> tuple[str, str]:
        first = await judge.ask(Critique, "Be brief.", {"n": 1})
        second = await judge.ask(Critique, "Be brief.", {"n": 2})
        return first.critique, second.critique

    return asyncio.run(run())


def test_a_list_is_consumed_in_order_and_its_last_reply_repeats():
    script = [Json({"critique": "one"}), Json({"critique": "two"})]
    with FakeOpenAI(script) as fake:
        judge = Judge.connect(fake.endpoint())
        assert ask_twice(judge) == ("one", "two")
    in_process = FakeOpenAI(script)
    assert ask_twice(fake_judge(in_process)) == ("one", "two")
    assert ask_twice(fake_judge(in_process)) == ("two", "two")
    assert [r.body for r in fake.requests] == [r.body for r in in_process.requests[:2]]


def test_requests_are_recorded_with_their_bodies_and_numbers():
    fake = FakeOpenAI(lambda request: Json({"critique": f"request {request.number}"}))
    assert ask_twice(fake_judge(fake)) == ("request 0", "request 1")
    assert [request.number for request in fake.requests] == [0, 1]
    assert fake.requests[0].messages[0] == {"role": "system", "content": "Be brief."}
    assert '"n": 2' in fake.requests[1].text


def test_usage_counts_words():
    async def run() -> openai.types.CompletionUsage:
        client = FakeOpenAI(Text("three short words")).client()
        completion = await client.chat.completions.create(model="m", messages=[{"role": "user", "content": "a b"}])
        return completion.usage

    usage = asyncio.run(run())
    assert (usage.prompt_tokens, usage.completion_tokens, usage.total_tokens) == (2, 3, 5)


def test_models_are_listed_and_other_paths_are_unknown():
    with FakeOpenAI(GOOD, model="tiny") as fake:
        with urllib.request.urlopen(f"{fake.url}/models", timeout=5) as response:
            assert [model["id"] for model in json.load(response)["data"]] == ["tiny"]
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(f"{fake.url}/embeddings", timeout=5)
    assert fake.requests == []


def test_after_the_block_nobody_listens_even_on_a_connection_that_was_kept_alive():
    async def run() -> None:
        with FakeOpenAI(GOOD) as fake:
            judge = Judge.connect(fake.endpoint(max_attempts=1))
            await judge.ask(Critique, "", {})
        with pytest.raises(JudgeFailure, match="connection"):
            await judge.ask(Critique, "", {})

    asyncio.run(run())


@pytest.mark.parametrize("over_http", [True, False])
def test_peak_counts_the_requests_in_flight(over_http):
    fake = FakeOpenAI(Json({"critique": "x"}, delay=0.2))

    async def run(judge: Judge) -> None:
        await asyncio.gather(*(judge.ask(Critique, "", {"n": n}) for n in range(4)))

    if over_http:
        with fake:
            asyncio.run(run(Judge.connect(fake.endpoint())))
    else:
        asyncio.run(run(fake_judge(fake)))
    assert fake.peak == 4


def test_sometimes_depends_on_seed_and_number_alone():
    def fates(seed: int, share: float = 0.3) -> list[bool]:
        choose = sometimes(Empty(), share, seed, otherwise=[GOOD])
        return [isinstance(choose(ChatRequest(number, {})), Empty) for number in range(1000)]

    assert fates(1) == fates(1)
    assert fates(1) != fates(2)
    assert 250 < sum(fates(1)) < 350
    assert sum(fates(1, share=0.0)) == 0
    assert sum(fates(1, share=1.0)) == 1000
    choose = sometimes(ServerError(), 0.3, 1, otherwise=GOOD)
    backwards = [isinstance(choose(ChatRequest(number, {})), ServerError) for number in reversed(range(1000))]
    assert backwards[::-1] == fates(1)


def test_an_exception_in_the_script_is_not_lost():
    def broken(request: ChatRequest) -> Text:
        raise ZeroDivisionError("script")

    fake = FakeOpenAI(broken)
    with pytest.raises(JudgeFailure, match="ZeroDivisionError"):
        ask_twice(fake_judge(fake))
    assert isinstance(fake.errors[0], ZeroDivisionError)


def test_a_script_without_replies_is_refused():
    with pytest.raises(ValueError, match="at least one reply"):
        FakeOpenAI([])


def test_the_scripted_policy_answers_at_every_seat_and_remembers_what_it_heard():
    async def shout(messages):
        return messages[-1]["content"].upper()

    players = scripted_players(shout)()
    said = asyncio.run(players.policy("a").say([{"role": "user", "content": "hi"}], base=[]))
    assert said == "HI"
    assert asyncio.run(scripted_players("same")("feedback").policy().say([])) == "same"
    assert players.seats["a"].heard == [([{"role": "user", "content": "hi"}], [])]


def test_everything_public_is_exported():
    names = set(agents.testing.__all__)
    assert {"FakeOpenAI", "ScriptedSeat", "fake_judge", "scripted_players", "sometimes"} <= names
    assert all(hasattr(agents.testing, name) for name in names)
