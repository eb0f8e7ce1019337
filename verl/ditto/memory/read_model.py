"""A model's shape, from its transformers config.

transformers builds the model on the meta device, where weights have shapes and no storage, and the weights are counted
there: the count is exact for every architecture, biases and vision towers included, and takes a second at most.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import torch
from torch import nn

from ditto.memory.model_shape import ModelShape


class NotDense(ValueError):
    """The model has parts whose memory the plan cannot compute, such as experts."""


def read_shape(path: str, trust_remote_code: bool = False) -> ModelShape:
    """The shape of the model in a local folder or in the hub's cache.

    Raises:
        NotDense: a mixture of experts, or no decoder-only transformer.
    """
    from transformers import AutoConfig

    return shape_of(AutoConfig.from_pretrained(path, trust_remote_code=trust_remote_code), path, trust_remote_code)


def shape_of(config: Any, name: str, trust_remote_code: bool = False) -> ModelShape:
    """The shape of the model that a transformers config describes.

    Raises:
        NotDense: a mixture of experts, or no decoder-only transformer.
    """
    text = config.get_text_config()
    experts = getattr(text, "num_experts", None) or getattr(text, "num_local_experts", None)
    if experts:
        raise NotDense(f"{name} is a mixture of {experts} experts; the plan knows dense decoders")
    model = build_on_meta(config, trust_remote_code)
    layers = _decoder_layers(model, text.num_hidden_layers, name)
    head = model.get_output_embeddings()
    tied = bool(head.weight is model.get_input_embeddings().weight)
    vision = getattr(config, "vision_config", None)
    head_width = getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads
    kv_heads = getattr(text, "num_key_value_heads", None) or text.num_attention_heads
    weights = list(model.parameters())  # a tied weight comes once
    layer_weights = sum(weight.numel() for weight in layers[0].parameters())
    own_units = set(_unit_classes(model))
    in_units = {id(p) for m in model.modules() if type(m).__name__ in own_units for p in m.parameters()}
    if not tied:
        in_units |= {id(m.weight) for m in model.modules() if isinstance(m, nn.Embedding)} | {id(head.weight)}
    return ModelShape(
        name=name,
        hidden=text.hidden_size,
        intermediate=text.intermediate_size,
        query=text.num_attention_heads * head_width,
        key_value=kv_heads * head_width,
        vocab=text.vocab_size,
        layers=text.num_hidden_layers,
        tied=tied,
        qk_norm=any(child.endswith("q_norm") for child, _ in layers[0].named_modules()),
        tensors=Counter(weight.numel() for weight in weights),
        layer_weights=layer_weights,
        root_weights=sum(weight.numel() for weight in weights if id(weight) not in in_units),
        layer_features=_linear_features(layers[0]),
        other_features=_linear_features(model) - len(layers) * _linear_features(layers[0]) - sum(head.weight.shape),
        vision_hidden=vision.hidden_size if vision is not None else 0,
    )


def build_on_meta(config: Any, trust_remote_code: bool = False) -> nn.Module:
    """The module that verl trains for this config, without storage."""
    from transformers import AutoModelForCausalLM, AutoModelForImageTextToText

    vision = type(config) in AutoModelForImageTextToText._model_mapping
    auto = AutoModelForImageTextToText if vision else AutoModelForCausalLM
    with torch.device("meta"):
        model: nn.Module = auto.from_config(config, trust_remote_code=trust_remote_code)
    return model


def _unit_classes(model: nn.Module) -> list[str]:
    """Names of the classes that verl's FSDP2 wraps one by one."""
    return [str(name) for name in model._no_split_modules or []]


def _decoder_layers(model: nn.Module, count: int, name: str) -> nn.ModuleList:
    candidates = [
        module
        for path, module in model.named_modules()
        if isinstance(module, nn.ModuleList) and len(module) == count and "visual" not in path and "vision" not in path
    ]
    if not candidates:
        raise NotDense(f"{name}: no list of {count} decoder layers in {type(model).__name__}")
    return max(candidates, key=lambda layers: sum(weight.numel() for weight in layers.parameters()))


def _linear_features(module: nn.Module) -> int:
    return sum(m.in_features + m.out_features for m in module.modules() if isinstance(m, nn.Linear))
