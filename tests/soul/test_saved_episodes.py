"""Every task's episode can be saved and read back whole, so that it can be judged later: Inspect's log, --rescore."""

import asyncio
import json

import pytest

from soul import examples
from soul.examples.endpoint import answer
from soul.judge import Gateway, Judge
from soul.policy import Players
from soul.session import RefineSettings, play, score
from soul.testing import FakeOpenAI


class Seat:
    def __init__(self, say):
        self.talk = say

    async def say(self, messages, base=None):
        return self.talk(messages)


@pytest.mark.parametrize("name", examples.names())
def test_a_saved_episode_is_the_same_and_gets_the_same_verdict(name):
    example = examples.load(name)
    row = example.row(0)
    player = example.player("oracle", row)
    fake = FakeOpenAI(answer)
    gateway = Gateway.from_judge(Judge.connect(fake.endpoint(structured="json_schema"), fake.connection()))

    async def session():
        attempt = await play(example.task, row, Players(lambda seat: Seat(player)), gateway, None, RefineSettings())
        first = attempt.episode
        attempt.episode = example.task.episode_type.from_json(json.loads(json.dumps(first.to_json())))
        await score(attempt, example.task, row, gateway)
        again = attempt.verdict
        attempt.episode = first
        await score(attempt, example.task, row, gateway)
        return (
            first,
            example.task.episode_type.from_json(json.loads(json.dumps(first.to_json()))),
            attempt.verdict,
            again,
        )

    first, read, verdict, again = asyncio.run(session())
    assert read == first and type(read) is type(first)
    assert again is not None and again == verdict
