"""A judge behind a real HTTP endpoint, and every fault that such an endpoint can have."""

import asyncio
from contextlib import contextmanager

from soul.judge import Judge
from soul.one_turn import Critique
from soul.testing import (
    BadRequest,
    DropConnection,
    Empty,
    FakeOpenAI,
    Hang,
    Json,
    NoQuota,
    NotFound,
    Refusal,
    ServerError,
    Text,
    Truncated,
    TruncatedJson,
    Unauthorized,
    WrongSchema,
)

GOOD = Json({"critique": "Look again."})


def ask(judge, schema=Critique, instructions="Be brief.", data=None):
    async def run():
        try:
            return await judge.ask(schema, instructions, data or {})
        finally:
            await judge.endpoint_client.connection.close()

    return asyncio.run(run())


@contextmanager
def served(script, **settings):
    """A judge behind a real HTTP endpoint with this script, and the endpoint."""
    with FakeOpenAI(script) as fake:
        yield (
            Judge.connect(
                fake.endpoint(
                    **{"timeout_s": 10.0, "max_attempts": 3, "max_reasks": 1, "structured": "json_schema", **settings}
                )
            ),
            fake,
        )


# what -> (the endpoint's reply, the failure's cause, requests until the judge gives up)
FAULTS = {
    # transient: max_attempts requests
    "500": (ServerError(500), "server_error", 3),
    "503": (ServerError(503), "server_error", 3),
    "silence": (Hang(30), "timeout", 3),
    "dropped connection": (DropConnection(), "connection", 3),
    # content: one re-ask
    "empty": (Empty(), "empty", 2),
    "blank": (Text(" \n"), "empty", 2),
    "refusal": (Refusal(), "refusal", 2),
    "token limit": (Truncated(), "truncated", 2),
    "truncated JSON": (TruncatedJson(), "invalid", 2),
    "wrong schema": (WrongSchema(), "invalid", 2),
    "not JSON": (Text("I give it a seven."), "invalid", 2),
    # permanent: one request
    "no such key": (Unauthorized(), "auth", 1),
    "no quota": (NoQuota(), "auth", 1),
    "no such model": (NotFound(), "not_found", 1),
    "bad request": (BadRequest(), "bad_request", 1),
}
