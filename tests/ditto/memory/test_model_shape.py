"""Weights are counted exactly: published sizes, adapters that peft makes, and what FSDP2 leaves to the root."""

from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import LlamaConfig, MixtralConfig, Qwen2Config

from ditto.memory.model_shape import NotDense, build_on_meta, shape_of
from tests.ditto.memory.qwen3 import text, vision_language

SMALL = {"hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2}
PUBLISHED = {"0.6B": 596_049_920, "8B": 8_190_735_360, "32B": 32_762_123_264}


@pytest.mark.parametrize("size", PUBLISHED)
def test_published_sizes(size: str) -> None:
    """As the model cards' safetensors count them."""
    shape = shape_of(text(size), size)
    assert shape.weights == PUBLISHED[size]
    assert shape.tied == (size == "0.6B") and shape.qk_norm


@pytest.mark.parametrize(
    "config",
    [text("0.6B"), text("8B"), vision_language(), LlamaConfig(**SMALL), Qwen2Config(**SMALL, tie_word_embeddings=True)],
    ids=["tied", "untied", "vision", "llama", "biases"],
)
def test_every_weight_has_its_place(config: Any) -> None:
    """Layers, embedding, head, vision blocks and root add up; adapters are those that peft makes."""
    shape = shape_of(config, "model")
    model = build_on_meta(config)
    head = 0 if shape.tied else shape.embedding
    embeddings = head + (0 if shape.tied else shape.embedding)
    in_vision = 0
    if tower := getattr(model.model, "visual", None):  # its position embedding is a unit of its own
        in_vision = sum(weight.numel() for part in (tower.blocks, tower.pos_embed) for weight in part.parameters())
    parts = shape.layers * shape.layer_weights + shape.root_weights + embeddings + in_vision
    assert parts == shape.weights == sum(weight.numel() for weight in model.parameters())
    with torch.device("meta"):
        peft = get_peft_model(model, LoraConfig(task_type="CAUSAL_LM", r=8, target_modules="all-linear"))
    assert shape.adapter(8) == sum(weight.numel() for weight in peft.parameters() if weight.requires_grad)


@pytest.mark.parametrize(
    "targets, exclude", [("all-linear", ".*visual.*"), (["q_proj", "v_proj"], None), (r".*\.mlp\..*_proj", ["up_proj"])]
)
def test_adapters_follow_the_config(targets: str | list[str], exclude: str | list[str] | None) -> None:
    """Peft's own reading of target_modules and exclude_modules."""
    how = LoraConfig(task_type="CAUSAL_LM", r=8, target_modules=targets, exclude_modules=exclude)
    shape = shape_of(vision_language(), "Qwen3-VL-8B", how)
    with torch.device("meta"):
        peft = get_peft_model(build_on_meta(vision_language()), how)
    assert shape.adapter(8) == sum(weight.numel() for weight in peft.parameters() if weight.requires_grad) > 0


def test_the_vision_tower_counts() -> None:
    assert shape_of(vision_language(), "Qwen3-VL-8B").weights == 8_767_123_696  # the model card's


def test_experts_are_refused() -> None:
    with pytest.raises(NotDense, match="mixture of 8 experts"):
        shape_of(MixtralConfig(**SMALL), "Mixtral")
