"""A machine without a network learns at once that a model is not in its cache."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from huggingface_hub import constants
from transformers import AutoConfig, AutoTokenizer

from ditto.model.tokenizer_check import load_tokenizer, use_cache_without_hub
from ditto.model.weights_check import BadModel


@pytest.fixture(autouse=True)
def no_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hub at a port where nobody listens."""
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)


def test_an_unknown_model_is_refused_without_retries(tmp_path: Path) -> None:
    use_cache_without_hub(str(tmp_path))
    assert not constants.HF_HUB_OFFLINE, "a folder needs no hub"
    assert AutoConfig and AutoTokenizer  # imported: that takes seconds
    start = time.monotonic()
    with pytest.raises(BadModel, match="model.path=nobody/nothing: neither an existing folder"):
        load_tokenizer("nobody/nothing", False, "model.path")
    assert time.monotonic() - start < 8  # the client's own retries take 24 s for each file
    assert constants.HF_HUB_OFFLINE and os.environ["HF_HUB_OFFLINE"] == "1"


def test_a_proxy_is_left_to_the_client(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    use_cache_without_hub("nobody/nothing")
    assert not constants.HF_HUB_OFFLINE
