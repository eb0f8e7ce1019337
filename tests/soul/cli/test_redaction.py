"""Keys are in no message, log or file; what is no secret stays readable."""

import asyncio
import logging

import pytest

from soul.cli.redaction import redact, redact_guessing, shown_url, without_secret_values
from soul.errors import BadSettings, JudgeFailure
from soul.judge import Endpoint, GatewaySettings, Judge
from soul.testing import FakeOpenAI, Unauthorized

KEY = "sk-sentinel-0123456789abcdef"


@pytest.fixture(autouse=True)
def _environment(monkeypatch):
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    monkeypatch.setenv("SOUL_TEST_KEY", KEY)


def test_keys_are_blanked_whatever_the_variable_is_named(monkeypatch):
    monkeypatch.setenv("SOUL_CREDENTIAL", f"other-{KEY}")
    Endpoint(api_key_env="SOUL_CREDENTIAL").key()
    assert redact(f"{KEY} other-{KEY}") == "*** ***"


@pytest.mark.parametrize(
    "url",
    [
        f"https://x.org/v1?api_key={KEY}",
        f"https://x.org/v1?api-version=2&subscriptionKey={KEY}",
        f"https://x.org/v1?X-Amz-Signature={KEY}&a=1",
        f"https://x.org/v1?ACCESS_TOKEN={KEY}",
        f"https://x.org/v1?key={KEY}",
        f"https://x.org/v1?sig={KEY}#f",
        f"https://user:{KEY}@x.org/v1",
    ],
)
def test_no_secret_of_a_url_is_shown(url, monkeypatch):
    monkeypatch.delenv("SOUL_TEST_KEY")
    assert KEY not in redact(f"Request: POST {url} 'HTTP/1.1 200 OK'") and "***" in redact(url)
    assert KEY not in shown_url(url)


SECRET_OPTIONS = [
    ("--hf-token hf_abc --seed 7", "--hf-token *** --seed 7"),
    ("--hf_token=hf_abc --seed=7", "--hf_token=*** --seed=7"),
    ("--api-key one two -- x", "--api-key *** *** -- x"),
    ("--tokenizer path --max-num-batched-tokens 8192 --ssl-keyfile f", None),
    ("--long-prefill-token-threshold 9 --hf-token --enforce-eager", None),
]


@pytest.mark.parametrize("typed, shown", SECRET_OPTIONS)
def test_the_value_of_a_secret_option_is_blanked(typed, shown):
    assert without_secret_values(typed.split()) == tuple((shown or typed).split())


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("unrecognized arguments: sk-abcdef", "unrecognized arguments: ***"),
        ("judge.apikey='abcdefgh' is unknown", "judge.apikey='***' is unknown"),
        ("http://me:abcdefgh@host/v1", "http://***@host/v1"),
        ("judge.api_key_env=OPENAI_API_KEY", "judge.api_key_env=OPENAI_API_KEY"),
    ],
)
def test_what_looks_like_a_key_is_blanked_where_the_user_typed_it(text, shown):
    assert redact_guessing(text) == shown


# --- a key in an address


def test_a_key_in_an_address_is_refused_and_not_repeated(monkeypatch):
    url = f"https://x.org/v1?api_key={KEY}"
    with pytest.raises(BadSettings, match="judge.base_url.*api_key=.*api_key_env") as caught:
        GatewaySettings.from_sections({"judge": {"base_url": url}})
    assert KEY not in str(caught.value)
    monkeypatch.setenv("OPENAI_BASE_URL", url)
    with pytest.raises(BadSettings, match="OPENAI_BASE_URL") as caught:
        GatewaySettings.from_sections({})
    assert KEY not in str(caught.value)


@pytest.mark.parametrize("secret", ["?tenant=sentinel-tenant&api-version=3", "user"], ids=["query", "user"])
def test_an_address_is_in_no_message_and_no_log_with_its_secrets(secret, monkeypatch, caplog):
    caplog.set_level(logging.DEBUG)
    with FakeOpenAI(Unauthorized()) as fake:
        url = fake.url.replace("//", "//user:sentinel-password@") if secret == "user" else fake.url + secret
        endpoint = fake.endpoint(base_url=url, api_key_env="SOUL_TEST_KEY")
        with pytest.raises(JudgeFailure) as caught:
            asyncio.run(Judge.connect(endpoint).check())
    shown = f"{caught.value} {endpoint.address} {endpoint.name}"
    assert "sentinel" not in shown
    lines = [r.getMessage() for r in caplog.records]
    assert not [line for line in lines if "sentinel-password" in line or KEY in line]


def test_a_broken_answer_does_not_show_the_query():
    """aiohttp repeats the whole URL where it cannot read an answer."""

    async def run():
        async def garbage(reader, writer):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"garbage\r\n\r\n")
            writer.close()

        server = await asyncio.start_server(garbage, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        settings = {"max_attempts": 1, "api_key_env": None, "base_url": f"http://127.0.0.1:{port}/v1?tenant=sentinel"}
        judge = Judge.connect(Endpoint(**settings))
        with pytest.raises(JudgeFailure, match="connection") as caught:
            await judge.check()
        await judge.close()
        server.close()
        return str(caught.value)

    assert "sentinel" not in asyncio.run(run())
