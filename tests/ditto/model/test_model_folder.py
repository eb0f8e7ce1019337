"""A model folder that would end a run late is refused by name: config, vocabulary, hub, chat template."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from huggingface_hub import constants
from omegaconf import DictConfig
from transformers import AutoConfig, AutoTokenizer

from ditto.launching.compose import load_config
from ditto.model.tokenizer_check import Chat, load_tokenizer, use_cache_without_hub
from ditto.model.weights_check import BadModel, check_model_folder, check_vocabulary
from ditto.preflight import check_chat, check_dialogues
from soul import tasks
from soul.chat.template_check import BadTemplate
from tests.ditto.memory.qwen3 import saved, text
from tests.soul.chat.families import CHATML
from tests.soul.chat.test_model_chat import model

QUANTIZED = json.dumps({"model_type": "qwen3", "quantization_config": {"quant_method": "gptq"}})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return saved(text("0.6B", num_hidden_layers=1), tmp_path / "model")


@pytest.mark.parametrize(
    ("file", "content", "complaint"),
    [
        ("generation_config.json", "{broken", "generation_config.json cannot be read"),
        ("generation_config.json", '{"max_new_tokens": -5}', "generation_config.json cannot be read"),
        (
            "config.json",
            '{"model_type": "qwen3", "quantization_config": {"quant_method": "gptq"}}',
            r"quantized \(gptq\)",
        ),
    ],
)
def test_a_folder_that_cannot_be_trained_is_refused_by_its_file(
    file: str, content: str, complaint: str, folder: Path
) -> None:
    check_model_folder(str(folder), False, "model.path")
    (folder / file).write_text(content)
    with pytest.raises(BadModel, match=complaint):
        check_model_folder(str(folder), False, "model.path")


def test_a_token_beyond_the_embedding(folder: Path) -> None:
    def tokenizer(last: int) -> Any:
        return SimpleNamespace(get_vocab=lambda: {"a": 0, "<extra>": last})

    check_vocabulary(str(folder), False, "model.path", tokenizer(151_935))
    with pytest.raises(BadModel, match=r"up to 151,936 \('<extra>'\), but the embedding has 151,936 rows"):
        check_vocabulary(str(folder), False, "model.path", tokenizer(151_936))


@pytest.fixture
def no_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hub at a port where nobody listens."""
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)


def test_an_unknown_model_is_refused_without_retries(no_hub: None, tmp_path: Path) -> None:
    use_cache_without_hub(str(tmp_path))
    assert not constants.HF_HUB_OFFLINE, "a folder needs no hub"
    assert AutoConfig and AutoTokenizer  # imported: that takes seconds
    start = time.monotonic()
    with pytest.raises(BadModel, match="model.path=nobody/nothing: neither an existing folder"):
        load_tokenizer("nobody/nothing", False, "model.path")
    assert time.monotonic() - start < 8  # the client's own retries take 24 s for each file
    assert constants.HF_HUB_OFFLINE and os.environ["HF_HUB_OFFLINE"] == "1"


def test_a_proxy_is_left_to_the_client(no_hub: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    use_cache_without_hub("nobody/nothing")
    assert not constants.HF_HUB_OFFLINE


ENDS = ["<|im_end|>"]


def config_of(folder: Path, *words: str) -> DictConfig:
    path = f"actor_rollout_ref.model.path={folder}"
    return load_config(["platform=cpu", "data.train_files=[x]", "data.val_files=[x]", path, *words])


def checked(config: DictConfig, *names: str) -> Chat:
    chat = check_chat(config)
    check_dialogues(config, chat, [tasks.load(name) for name in names])
    return chat


def test_a_file_replaces_the_template_by_its_text(tmp_path: Path) -> None:
    model(tmp_path, "Phi 4", ENDS)
    (tmp_path / "mine.jinja").write_text("{# mine #}" + CHATML)
    config = config_of(tmp_path, f"actor_rollout_ref.model.custom_chat_template={tmp_path}/mine.jinja")
    chat = checked(config, "sotopia")
    assert config.actor_rollout_ref.model.custom_chat_template == "{# mine #}" + CHATML
    assert "<|im_start|>user\n" in chat.tokenizer.apply_chat_template([{"role": "user", "content": ""}], tokenize=False)
    with pytest.raises(BadModel, match=r"custom_chat_template=gone\.jinja: neither a file"):
        check_chat(config_of(tmp_path, "actor_rollout_ref.model.custom_chat_template=gone.jinja"))


def test_a_template_that_moves_the_instructions_is_refused_for_dialogues_alone(tmp_path: Path) -> None:
    model(tmp_path, "Mistral v0.3", ENDS)
    checked(config_of(tmp_path), "hitom")
    with pytest.raises(BadTemplate, match=r"(?s)moves or changes.*As served: .*\[INST\].*As trained: .*sotopia cannot"):
        checked(config_of(tmp_path), "hitom", "sotopia")
