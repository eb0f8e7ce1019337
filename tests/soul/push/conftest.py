"""The hub that the tests push to."""

from collections.abc import Iterator

import pytest

from tests.soul.push.fake_hub import TOKEN, FakeHub


@pytest.fixture
def hub() -> Iterator[FakeHub]:
    with FakeHub(TOKEN) as fake:
        yield fake
