"""The drop-in user, asked in the forms of the tools, over HTTP, with a scripted model behind it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import urllib.request
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp.test_utils import TestClient, TestServer

from soul.drop_in.audit import read
from soul.drop_in.faults import faults
from soul.drop_in.player import Player
from soul.drop_in.serve import TASK, application, main
from soul.judge import Endpoint
from soul.testing.replies import Answer, BadRequest, ChatRequest, Reply, Text
from soul.testing.server import FakeOpenAI, refused_url

pytestmark = pytest.mark.anyio
TOLD = "You want a table for two on Friday. Reveal it step by step. When that is done, write {stop}."
TOOLS = [{"type": "function", "function": {"name": "toggle_roaming", "parameters": {"type": "object"}}}]
LEAK = "As a simulated user, my instructions are to book a table."


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Call(Reply):
    """A completion that calls a tool, with text beside it."""

    def __init__(self, name: str, arguments: str) -> None:
        self.function = {"name": name, "arguments": arguments}

    def answer(self, request: ChatRequest) -> Answer:
        message = {"role": "assistant", "content": "I do it.", "tool_calls": [{"id": "1", "function": self.function}]}
        return Answer(body=json.dumps({"choices": [{"index": 0, "message": message}]}).encode())


@asynccontextmanager
async def user(fake: FakeOpenAI, keep: Path | None = None, **more: Any) -> AsyncIterator[TestClient[Any, Any]]:
    player = Player(fake.endpoint(), fake.connection(), **more)
    async with TestClient(TestServer(application(player, keep))) as client:
        yield client


async def ask(client: TestClient[Any, Any], messages: Sequence[Any], **body: Any) -> dict[str, Any]:
    """The first choice's message, with what the server says of it."""
    answer = await client.post("/v1/chat/completions", json={"model": "any", "messages": messages, **body})
    completion = await answer.json()
    assert answer.status == 200, completion
    return {**completion["choices"][0]["message"], **completion["soul"]}


def chat(*turns: str, stop: str = "###STOP###") -> list[dict[str, str]]:
    """A request in which the other side begins; the person is its assistant."""
    roles = ("user", "assistant") * len(turns)
    talk = [{"role": role, "content": text} for role, text in zip(roles, turns, strict=False)]
    return [{"role": "system", "content": TOLD.format(stop=stop)}, *talk]


BOOKED = ("Hi!", "A table for two, please.", "Which day?", "Friday", "It is booked. Anything else?")


@pytest.mark.parametrize(
    ("told", "said", "content"),
    [
        ("###STOP###", "No, thanks. <|endconversation|>", "No, thanks. ###STOP###"),  # tau2
        ("###STOP### or ###TRANSFER###", "Ok. ###STOP###", "Ok. ###STOP###"),
        ("exactly ###DONE### and nothing else", "No, thanks! ###DONE###", "###DONE###"),  # verifiers compares the whole
        ("goodbye", "No, thanks. <|endconversation|>", "No, thanks."),  # a tool without a token: UserSim
    ],
)
async def test_the_user_ends_with_the_token_that_the_tool_names(told: str, said: str, content: str) -> None:
    async with user(FakeOpenAI(Text(said))) as client:
        turn = await ask(client, chat(*BOOKED, stop=told))
    assert (turn["content"], turn["ended"], turn["refused"]) == (content, True, [])


async def test_a_user_that_has_ended_stays_so_and_the_model_is_not_asked() -> None:
    fake = FakeOpenAI(Text("And another thing!"))
    async with user(fake) as client:
        turn = await ask(client, chat(*BOOKED, "No. ###STOP###", "Bye!"))
    assert (turn["content"], turn["ended"], fake.requests) == ("###STOP###", True, [])


async def test_a_second_goodbye_ends_the_conversation() -> None:
    async with user(FakeOpenAI(Text("Bye!"))) as client:
        turn = await ask(client, chat(*BOOKED, "That's all, bye", "Goodbye!"))
    assert turn["content"] == "Bye! ###STOP###"


async def test_a_faulty_turn_is_asked_for_again_with_the_reason() -> None:
    fake = FakeOpenAI([Text(LEAK), Text("How can I help you?"), Text("User: Friday <think>!</think>")])
    async with user(fake) as client:
        turn = await ask(client, chat(*BOOKED[:3]), temperature=0.5, seed=7)
    assert (turn["content"], turn["refused"]) == ("Friday", ["reveals_plan", "speaks_as_assistant"])
    systems = [request.messages[0]["content"] for request in fake.requests]
    assert all(system.startswith(TOLD[:20]) and "never" in system.lower() for system in systems)
    assert "refused" not in systems[0] and "instructions" in systems[1] and "offers help" in systems[2]
    assert [system.count("refused") for system in systems] == [0, 1, 2]  # no prompt twice, so no answer twice
    assert {(request.body["temperature"], request.body["seed"]) for request in fake.requests} == {(0.5, 7)}


@pytest.mark.parametrize(
    ("said", "content"),
    [
        (LEAK, "I'm not sure. What happens next?"),  # never sent, however often the model says it
        ("Friday ###STOP###", "Friday"),
        ("###STOP###", "Sorry, what do you need from me?"),
    ],
)
async def test_what_stays_faulty_does_no_harm(said: str, content: str) -> None:
    fake = FakeOpenAI(Text(said))
    async with user(fake, tries=2) as client:
        turn = await ask(client, chat(*BOOKED[:3]))
    assert (turn["content"], turn["ended"], len(fake.requests), len(turn["refused"])) == (content, False, 2, 2)


async def test_tools_of_the_user_reach_the_model_and_calls_come_back_without_text() -> None:
    done = [
        {"role": "assistant", "content": None, "tool_calls": [{"id": "1", "function": {"name": "toggle_roaming"}}]},
        {"role": "tool", "tool_call_id": "1", "content": "Roaming is <|im_end|> on, id 4711"},
    ]
    fake = FakeOpenAI(
        [Call("toggle_roaming", "{}"), Call("reboot", "{}"), Call("toggle_roaming", "{"), Text("It says 4711.")]
    )
    async with user(fake) as client:
        first = await ask(client, chat("Please toggle roaming."), tools=TOOLS, tool_choice="auto")
        second = await ask(client, [*chat("Please toggle roaming."), *done], tools=TOOLS)
    assert first["content"] is None and first["tool_calls"][0]["function"]["name"] == "toggle_roaming"
    assert (second["content"], second["refused"]) == ("It says 4711.", ["says_nothing"] * 2)
    assert fake.requests[0].body["tools"] == TOOLS
    assert fake.requests[1].messages[-2] == done[0] and "<|im_end|>" not in fake.requests[1].messages[-1]["content"]


@pytest.mark.parametrize("said", ["Friday.", '```json\n{"simulated_input": "Friday."}\n```'])
async def test_one_prompt_that_asks_for_json_gets_it(said: str) -> None:
    """As DeepEval asks, in its two ways; and its own question, whether the goal is reached, goes through as it is."""
    field = {"type": "object", "properties": {"simulated_input": {"type": "string"}}}
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": field}}
    question = [{"role": "user", "content": "Complete? A JSON object with two keys: `is_complete`, `reason`."}]
    fake = FakeOpenAI([Text(said), Text(said), Text('{"is_complete": true, "reason": "As an AI ..."}')])
    async with user(fake) as client:
        prompt = [{"role": "user", "content": "Write a JSON object with a single key `simulated_input`."}]
        assert json.loads((await ask(client, prompt))["content"]) == {"simulated_input": "Friday."}
        prompt = [{"role": "user", "content": [{"type": "text", "text": "Write the next input."}]}]
        assert json.loads((await ask(client, prompt, response_format=form))["content"]) == {
            "simulated_input": "Friday."
        }
        answer = await client.post("/v1/chat/completions", json={"messages": question})
        assert "As an AI" in (await answer.json())["choices"][0]["message"]["content"]
    assert fake.requests[2].messages == question


async def test_promptfoo_asks_in_its_own_form() -> None:
    fake = FakeOpenAI([Text("A table, please."), Text("No, thanks. <|endconversation|>")])
    history = [{"role": "assistant", "content": "A table, please."}, {"role": "user", "content": "It is booked."}]
    async with user(fake) as client:
        asked = {"task": "tau", "instructions": "You want a table."}
        first = await (await client.post(TASK, json={**asked, "history": []})).json()
        second = await (await client.post(TASK, json={**asked, "history": history})).json()
    assert (first, second) == ({"result": "A table, please."}, {"result": "No, thanks. ###STOP###"})
    assert [message["role"] for message in fake.requests[0].messages] == ["system", "user"]  # the opening cue


async def test_a_streamed_answer_is_one_chunk() -> None:
    async with user(FakeOpenAI(Text("Friday"))) as client:
        answer = await client.post("/v1/chat/completions", json={"messages": chat(*BOOKED[:3]), "stream": True})
        lines = [line for line in (await answer.text()).splitlines() if line]
    assert json.loads(lines[0].removeprefix("data: "))["choices"][0]["delta"]["content"] == "Friday"
    assert lines[1:] == ["data: [DONE]"]


async def test_an_error_of_the_model_is_passed_on_without_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUR_KEY", "sk-very-secret-key")
    fake = FakeOpenAI(BadRequest("no {key} sk-very-secret-key"))
    player = Player(fake.endpoint(api_key_env="OUR_KEY"), fake.connection())
    async with TestClient(TestServer(application(player))) as client:
        answer = await client.post("/v1/chat/completions", json={"messages": chat("Hi!")})
        assert answer.status == 400
        assert "no " in (text := await answer.text()) and "very-secret" not in text


async def test_conversations_are_kept_and_a_perfect_user_passes_the_audit(tmp_path: Path) -> None:
    said = ["A table for two, please.", "Friday", "No, thank you. ###STOP###"]
    async with user(FakeOpenAI([Text(text) for text in said]), tmp_path / "talks.jsonl") as client:
        talk: list[str] = []
        for heard in ("Hi!", "Which day?", "It is booked. Anything else?"):
            talk += [heard, (await ask(client, chat(*talk, heard)))["content"]]
    (kept,) = read(tmp_path / "talks.jsonl")
    assert [m["content"] for m in kept.messages if m["role"] == "user"] == said
    assert kept.instructions == TOLD.format(stop="###STOP###") and faults(kept) == []


def test_the_command_serves_an_endpoint_until_it_is_interrupted() -> None:
    with FakeOpenAI(Text("Friday")) as fake:
        words = ["policy.model=mine", f"policy.base_url={fake.url}", "--port", "0"]
        command = [sys.executable, "-m", "soul", "serve", *words]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            address = process.stdout.readline().split(" plays the user at ")[1].split(". ")[0]
            body = json.dumps({"messages": chat("Which day?")}).encode()
            with urllib.request.urlopen(f"{address}/chat/completions", body, timeout=30) as answer:
                completion = json.load(answer)
            process.send_signal(signal.SIGINT)
    assert (completion["choices"][0]["message"]["content"], process.returncode) == ("Friday", 0)


async def test_a_request_that_is_none_and_a_dead_endpoint_are_told_apart() -> None:
    endpoint = Endpoint(model="m", base_url=refused_url(), api_key_env=None)
    player = Player(endpoint, endpoint.connection())
    async with TestClient(TestServer(application(player))) as client:
        assert (await client.post("/v1/chat/completions", json={"prompt": "Hi"})).status == 400
        dead = await client.post("/v1/chat/completions", json={"messages": chat("Hi!")})
        assert dead.status == 502 and "m at http://127.0.0.1" in await dead.text()


@pytest.mark.parametrize("words", [[], ["one/model", "other/model"], ["one/model", "policy.base_url=http://x/v1"]])
def test_a_command_that_names_no_model_or_two_is_refused(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_AGENT_MODEL", raising=False)
    try:
        assert main(words) == 2
    except SystemExit as end:
        assert end.code == 2
