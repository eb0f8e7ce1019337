"""The corpora of these tests are small: they are tokenised in the process of the test unless it says otherwise."""

import pytest

from sft.corpus import tokenize


@pytest.fixture(autouse=True)
def one_core(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tokenise without processes of its own."""
    monkeypatch.setattr(tokenize, "cores", lambda: 1)
