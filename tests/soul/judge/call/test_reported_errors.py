"""Errors that an endpoint reports in other ways than a status: never an answer, and never more than they are.

Gateways in front of several providers answer with status 200 and an error in the body, or end a choice with
`finish_reason: "error"`; they answer 402 without credit, and 403 to one prompt that a moderation flagged.
"""

import asyncio
import json
from dataclasses import dataclass

import pytest

import soul.judge.client
from soul.errors import JudgeFailure
from soul.judge import ChatModel, Endpoint
from soul.testing import FakeOpenAI, Text
from soul.testing.replies import Answer, ChatRequest, Reply, error_answer

USED = {"prompt_tokens": 5, "completion_tokens": 2}


@pytest.fixture(autouse=True)
def _no_backoff(monkeypatch):
    monkeypatch.setattr(soul.judge.client, "backoff_s", lambda attempt: 0.0)


@dataclass(frozen=True)
class Body(Reply):
    """A JSON body with status 200."""

    value: dict

    def answer(self, request: ChatRequest) -> Answer:
        return Answer(body=json.dumps(self.value).encode())


@dataclass(frozen=True)
class Status(Reply):
    status: int
    message: str

    def answer(self, request: ChatRequest) -> Answer:
        return error_answer(self.status, self.message)


def broken_off(text, **more):
    choice = {"index": 0, "finish_reason": "error", "message": {"role": "assistant", "content": text}, **more}
    return Body({"choices": [choice], "usage": USED})


REPORTED = {
    "an error": Body({"error": {"code": 502, "message": "upstream\n overloaded"}, "user_id": "u"}),
    "a broken choice": broken_off("", error={"message": "upstream overloaded"}),
    "half a text": broken_off("Let me think about wh", error={"message": "upstream overloaded"}),
}


def said(fake, call="say", **settings):
    """What a model says, or its failure; and its counters."""

    async def run():
        model = ChatModel.connect(Endpoint(model="m", base_url=fake.url, api_key_env="none", **settings))
        try:
            return await getattr(model, call)([{"role": "user", "content": "hi"}]), model.usage
        except JudgeFailure as failure:
            return failure, model.usage
        finally:
            await model.close()

    return asyncio.run(run())


@pytest.mark.parametrize("reply", REPORTED.values(), ids=REPORTED.keys())
def test_an_error_with_status_200_is_never_an_answer(reply):
    with FakeOpenAI(reply) as fake:
        failure, usage = said(fake, max_attempts=3)
    assert (failure.cause, len(fake.requests)) == ("server_error", 3)
    assert failure.detail.endswith("upstream overloaded") and usage.failures == {"server_error": 1}


def test_without_credit_no_further_call_can_succeed():
    with FakeOpenAI(Status(402, "Insufficient credits. Add more at example.org.")) as fake:
        failure, _ = said(fake)
    assert (failure.cause, len(fake.requests)) == ("auth", 1) and "Add more at example.org" in failure.detail


MODERATED = "m requires moderation on Example. Your input was flagged for violence."


def test_a_flagged_prompt_is_a_refusal_and_says_nothing_about_the_others():
    with FakeOpenAI([Status(403, MODERATED), Text("Hello.")]) as fake:
        failure, _ = said(fake)
        assert (failure.cause, len(fake.requests)) == ("refusal", 1) and "flagged for violence" in failure.detail
        assert said(fake)[0] == "Hello."
    with FakeOpenAI(Status(403, "This key may not use the model")) as fake:
        assert said(fake)[0].cause == "auth"
