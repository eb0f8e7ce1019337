"""Test doubles: an OpenAI-compatible endpoint that misbehaves on demand, and a scripted policy.

    from soul.testing import FakeOpenAI, Json, RateLimit

    with FakeOpenAI([RateLimit(retry_after=0.1), Json({"critique": "Look again."})]) as fake:
        ...  # point any OpenAI client at fake.url
    assert len(fake.requests) == 2

The fake does not stream. It rejects response formats that it does not support (`FakeOpenAI(script, supports=())`).
Connections to `refused_url()` are refused.

To test a task or the driver without HTTP, use `fake_judge` and `scripted_players`. The checks that every task must
pass are in `soul.examples.contract`.
"""

from soul.testing.doubles import ScriptedSeat, fake_gateway, fake_judge, scripted_players  # noqa: F401
from soul.testing.replies import (  # noqa: F401
    BadRequest,
    ChatRequest,
    DropConnection,
    Empty,
    Fault,
    Hang,
    Json,
    NoQuota,
    NotFound,
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
)
from soul.testing.server import FakeOpenAI, refused_url  # noqa: F401
