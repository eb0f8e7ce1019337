"""Facts of a model that would end a run late are refused by name."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ditto.model.weights_check import BadModel, check_model_folder, check_vocabulary
from tests.ditto.memory.qwen3 import saved, text


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return saved(text("0.6B", num_hidden_layers=1), tmp_path / "model")


def change(file: Path, **values: Any) -> None:
    file.write_text(json.dumps({**json.loads(file.read_text()), **values}))


def test_a_sound_folder(folder: Path) -> None:
    check_model_folder(str(folder), False, "model.path")


@pytest.mark.parametrize(
    ("file", "content", "said"),
    [
        ("generation_config.json", "{broken", "generation_config.json cannot be read"),
        ("generation_config.json", '{"max_new_tokens": -5}', "generation_config.json cannot be read"),
    ],
)
def test_a_broken_generation_config(file: str, content: str, said: str, folder: Path) -> None:
    (folder / file).write_text(content)
    with pytest.raises(BadModel, match=said):
        check_model_folder(str(folder), False, "model.path")


def test_quantized_weights(folder: Path) -> None:
    change(folder / "config.json", quantization_config={"quant_method": "gptq", "bits": 4})
    with pytest.raises(BadModel, match=r"quantized \(gptq\)"):
        check_model_folder(str(folder), False, "model.path")


def test_a_token_beyond_the_embedding(folder: Path) -> None:
    def tokenizer(last: int) -> Any:
        return SimpleNamespace(get_vocab=lambda: {"a": 0, "<extra>": last})

    check_vocabulary(str(folder), False, "model.path", tokenizer(151_935))
    with pytest.raises(BadModel, match=r"up to 151,936 \('<extra>'\), but the embedding has 151,936 rows"):
        check_vocabulary(str(folder), False, "model.path", tokenizer(151_936))
