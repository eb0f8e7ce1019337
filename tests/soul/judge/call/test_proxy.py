"""A site's proxy, set for the whole environment (http_proxy), is no way to this machine."""

import asyncio

import pytest

from soul.judge import ChatModel, Endpoint
from soul.judge.call.http import proxy_of
from soul.testing import FakeOpenAI, Text
from soul.testing.replies import ChatRequest

HI = [{"role": "user", "content": "hi"}]


@pytest.fixture
def proxy(monkeypatch):
    """A proxy of the environment that answers everything with its own words."""
    for name in ("no_proxy", "NO_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY", "HTTP_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with FakeOpenAI(Text("from the proxy")) as fake:
        fake._respond = lambda *_: Text("from the proxy").answer(ChatRequest(0, {}))  # whatever the address
        monkeypatch.setenv("http_proxy", fake.url.removesuffix("/v1"))
        yield fake


def said(url):
    async def run():
        model = ChatModel.connect(Endpoint(model="m", base_url=url, api_key_env="none", max_attempts=1))
        try:
            return await model.say(HI)
        finally:
            await model.close()

    return asyncio.run(run())


def test_this_machine_is_asked_directly_and_others_through_the_proxy(proxy):
    with FakeOpenAI(Text("from the server")) as fake:
        for host in ("127.0.0.1", "localhost"):
            assert said(fake.url.replace("127.0.0.1", host)) == "from the server"
    assert said("http://judge.invalid/v1") == "from the proxy"


@pytest.mark.parametrize("host, direct", [("127.0.0.9", True), ("::1", True), ("10.0.0.1", False), ("", False)])
def test_what_this_machine_is(host, direct, monkeypatch):
    monkeypatch.setenv("http_proxy", "http://proxy")
    assert (proxy_of("http", host) is None) is direct
