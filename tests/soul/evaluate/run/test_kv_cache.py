"""vLLM's cache on a CPU follows from the model and the free memory."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from soul.evaluate.run import vllm_server
from soul.evaluate.run.checkpoint import Checkpoint
from soul.evaluate.run.vllm_server import ServerSettings

QWEN: dict[str, Any] = {"num_hidden_layers": 28, "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128}
QWEN |= {"hidden_size": 1024, "max_position_embeddings": 40960}
TOKEN = 2 * 28 * 8 * 128 * 4
FLAG = "--kv-cache-memory-bytes"


def command(folder: Path, config: dict[str, Any], *arguments: str) -> list[str]:
    (folder / "config.json").write_text(json.dumps(config))
    checkpoint = Checkpoint("model", str(folder), None, "0")
    return ServerSettings(arguments=arguments, platform="cpu").command(checkpoint, 8000)


@pytest.mark.parametrize(
    ("free_gib", "arguments", "cache"),
    [
        (22, [], 11 << 30),  # half of the free memory: more than the 4 GB of one sequence, less than those of 16
        (1000, [], 16 * (17_408 + 256) * TOKEN),
        (22, ["--max-model-len", "2048"], 16 * (2048 + 256) * TOKEN),
        (22, ["--max-model-len=2048"], 16 * (2048 + 256) * TOKEN),
    ],
)
def test_a_cache_holds_some_whole_sequences(
    free_gib: int, arguments: list[str], cache: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vllm_server, "free_memory", lambda: free_gib << 30)
    words = command(tmp_path, QWEN, *arguments)
    assert int(words[words.index(FLAG) + 1]) == cache


def test_a_context_that_does_not_fit_is_refused_with_one_that_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vllm_server, "free_memory", lambda: 4 << 30)
    with pytest.raises(vllm_server.CacheTooLarge, match="17,408 tokens need 3.8 GiB") as refused:
        command(tmp_path, QWEN)
    fitting = str(refused.value).partition("--max-model-len ")[2].partition(")")[0]
    assert FLAG in command(tmp_path, QWEN, "--max-model-len", fitting)


def test_the_users_cache_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vllm_server, "free_memory", lambda: 1 << 30)
    assert command(tmp_path, QWEN, FLAG, "123").count(FLAG) == 1


def test_a_vision_language_model_and_an_unknown_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vllm_server, "free_memory", lambda: 8 << 30)
    assert vllm_server.token_bytes({"text_config": QWEN}) == TOKEN
    assert vllm_server.cache_bytes({}, 17_408) == 4 << 30  # a hub id that is not downloaded yet
