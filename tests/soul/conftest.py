"""Fixtures of several folders."""

import pytest

import soul.judge.client
from tests.soul.pages.browser_pages import chromium


@pytest.fixture(scope="module")
def browser():
    with chromium() as launched:
        yield launched


@pytest.fixture
def no_backoff(monkeypatch):
    """Of its own accord a client does not wait between attempts; what an endpoint asks for (Retry-After) is waited."""
    monkeypatch.setattr(soul.judge.client, "backoff_s", lambda attempt: 0.0)
