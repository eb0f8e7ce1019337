"""Test doubles that ship with the package: an endpoint that misbehaves on demand, and a scripted policy.

    from soul.testing import FakeOpenAI, Json, RateLimit

    with FakeOpenAI([RateLimit(retry_after=0.1), Json({"critique": "Look again."})]) as fake:
        ...  # point any OpenAI client at fake.url
    assert len(fake.requests) == 2

The fake streams where a request asks for it, and refuses response formats that it is told not to know
(`FakeOpenAI(script, supports=())`). At `refused_url()` nobody listens at all.

`fake_judge` and `scripted_players` do without HTTP: they are what tests of a task or of the driver need.
"""

from soul.testing.doubles import ScriptedSeat, fake_gateway, fake_judge, scripted_players
from soul.testing.replies import (
    BadRequest,
    ChatRequest,
    DropConnection,
    Duplicate,
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
    SlowStream,
    Text,
    Truncated,
    TruncatedJson,
    Unauthorized,
    WrongSchema,
    sometimes,
)
from soul.testing.server import FakeOpenAI, refused_url

__all__ = [
    "BadRequest",
    "ChatRequest",
    "DropConnection",
    "Duplicate",
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
    "SlowStream",
    "Text",
    "Truncated",
    "TruncatedJson",
    "Unauthorized",
    "WrongSchema",
    "fake_gateway",
    "fake_judge",
    "refused_url",
    "scripted_players",
    "sometimes",
]
