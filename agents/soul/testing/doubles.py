"""Test doubles for a session: a policy that answers by a Python function, and a judge without a network."""

import inspect
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from soul.judge import Gateway, Judge
from soul.message import Message
from soul.policy import Players
from soul.session import Context
from soul.testing.replies import Script
from soul.testing.server import FakeOpenAI

Policy = str | Callable[[Sequence[Message]], str | Awaitable[str]]


@dataclass
class ScriptedSeat:
    """A seat of the policy that answers by a function of the messages, or always with the same text.

    Attributes:
        heard: the arguments of each call of `say`: the messages, and `base` (None if the task gave none).
    """

    policy: Policy
    name: str = "policy"
    heard: list[tuple[list[Message], list[Message] | None]] = field(default_factory=list)

    async def say(self, messages: Sequence[Message], base: Sequence[Message] | None = None) -> str:
        self.heard.append((list(messages), None if base is None else list(base)))
        if isinstance(self.policy, str):
            return self.policy
        answer = self.policy(messages)
        return await answer if inspect.isawaitable(answer) else answer


def scripted_players(policy: Policy) -> Callable[..., Players]:
    """The `new_players` argument for `run_session`, with a scripted policy in every seat.

    Call the result without an argument to get the players of one episode, for `Task.play`.
    """

    def new_players(context: Context = "base") -> Players:
        return Players(lambda name: ScriptedSeat(policy, name))

    return new_players


def fake_judge(script: Script | FakeOpenAI, **settings: Any) -> Judge:
    """A `Judge` with an in-process endpoint; `settings` are fields of `Endpoint`, for example max_attempts=1.

    Pass a `FakeOpenAI` to inspect its requests afterwards.
    """
    fake = script if isinstance(script, FakeOpenAI) else FakeOpenAI(script)
    endpoint = fake.endpoint(**settings)
    return Judge.connect(endpoint, fake.connection())


def fake_gateway(script: Script | FakeOpenAI, **settings: Any) -> Gateway:
    """A `Gateway` whose roles all use one in-process endpoint; see `fake_judge`."""
    return Gateway.from_judge(fake_judge(script, **settings))
