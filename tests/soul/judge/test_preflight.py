"""What the test call before a run says about an endpoint that refuses it."""

from __future__ import annotations

import asyncio

import pytest

from soul.judge import GatewaySettings
from soul.judge.preflight import BadJudge, check
from soul.testing import FakeOpenAI, Unauthorized


@pytest.mark.parametrize(
    ("variable", "remedy"),
    [("SOUL_TEST_KEY", "The key in SOUL_TEST_KEY is not accepted"), ("none", "its variable with judge.api_key_env")],
)
def test_a_refused_key_has_a_remedy(variable: str, remedy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOUL_TEST_KEY", "sk-test-0123456789")
    with FakeOpenAI(Unauthorized()) as fake:
        judge = {"model": "m", "base_url": fake.url, "api_key_env": variable}
        with pytest.raises(BadJudge, match=remedy) as refused:
            asyncio.run(check(GatewaySettings.from_sections({"judge": judge}), ["judge"]))
    assert "None" not in str(refused.value)
