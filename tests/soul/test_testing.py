"""The fake endpoint itself: what other tests conclude from it must hold over HTTP and in process alike."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import openai
import pytest

from soul.testing import (
    BadRequest,
    DropConnection,
    FakeOpenAI,
    Hang,
    Json,
    NoQuota,
    NotFound,
    RateLimit,
    ServerError,
    Unauthorized,
)

GOOD = Json({"critique": "Look again."})
QUESTION = {"model": "m", "messages": [{"role": "user", "content": "two words"}]}


@asynccontextmanager
async def connect(fake: FakeOpenAI, timeout: float = 10.0) -> AsyncIterator[openai.AsyncOpenAI]:
    """The real SDK's client on the running fake."""
    # No TLS here, and its certificates take longer to load than a test.
    transport = openai.DefaultAsyncHttpxClient(timeout=timeout, verify=False)
    with fake:
        client = openai.AsyncOpenAI(
            api_key="any", base_url=fake.url, http_client=transport, timeout=timeout, max_retries=0
        )
        async with client:
            yield client


async def text_of(client: openai.AsyncOpenAI, **extra) -> str | None:
    return (await client.chat.completions.create(**QUESTION, **extra)).choices[0].message.content


@pytest.mark.parametrize(
    ("fault", "expected", "code"),
    [
        (RateLimit(retry_after=7), openai.RateLimitError, "rate_limit_exceeded"),
        (NoQuota(), openai.RateLimitError, "insufficient_quota"),
        (ServerError(503), openai.InternalServerError, None),
        (BadRequest(), openai.BadRequestError, "invalid_request_error"),
        (Unauthorized(), openai.AuthenticationError, "invalid_api_key"),
        (NotFound(), openai.NotFoundError, "model_not_found"),
        (Hang(30), openai.APITimeoutError, None),
        (DropConnection(), openai.APIConnectionError, None),
    ],
)
def test_the_sdk_raises_what_the_fault_stands_for_and_the_server_lives_on(fault, expected, code):
    async def run() -> openai.APIError:
        async with connect(FakeOpenAI([GOOD, fault, GOOD]), 0.2 if isinstance(fault, Hang) else 10.0) as client:
            good = await text_of(client)  # so that the fault meets a connection that was kept alive
            with pytest.raises(expected) as caught:
                await text_of(client)
            assert await text_of(client) == good
        return caught.value

    error = asyncio.run(run())
    assert type(error) is expected and error.code == code
    if isinstance(fault, RateLimit):
        assert error.response.headers["retry-after"] == "7"
