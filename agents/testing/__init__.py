"""Test doubles that ship with the package: an endpoint that misbehaves on demand, and a scripted policy.

    from agents.testing import FakeOpenAI, Json, RateLimit

    with FakeOpenAI([RateLimit(retry_after=0.1), Json({"critique": "Look again."})]) as fake:
        ...  # point any OpenAI client at fake.url
    assert len(fake.requests) == 2

`fake_judge` and `scripted_players` do without HTTP: they are what tests of a task or of the driver need.
"""

from agents.testing.doubles import ScriptedSeat, fake_judge, scripted_players
from agents.testing.replies import (
    BadRequest,
    ChatRequest,
    DropConnection,
    Empty,
    Fault,
    Hang,
    Json,
    NoQuota,
    NotFound,
    NotJson,
    RateLimit,
    Refusal,
    Reply,
    Script,
    ServerError,
    Text,
    Truncated,
    TruncatedJson,
    Unauthorized,
    WrongSchema,
    sometimes,
)
from agents.testing.server import FakeOpenAI

__all__ = [
    "BadRequest",
    "ChatRequest",
    "DropConnection",
    "Empty",
    "FakeOpenAI",
    "Fault",
    "Hang",
    "Json",
    "NoQuota",
    "NotFound",
    "NotJson",
    "RateLimit",
    "Refusal",
    "Reply",
    "Script",
    "ScriptedSeat",
    "ServerError",
    "Text",
    "Truncated",
    "TruncatedJson",
    "Unauthorized",
    "WrongSchema",
    "fake_judge",
    "scripted_players",
    "sometimes",
]
