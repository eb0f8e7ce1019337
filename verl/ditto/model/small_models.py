"""Small models with random weights, of a model's own class and of its own config, for checks that run in seconds."""

from __future__ import annotations

import copy
import logging
import math
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor, nn

from soul.errors import one_line

logger = logging.getLogger(__name__)
VOCABULARY = 64
TOLERANCE = 1e-3  # relative, of outputs and gradients in float32
# Sizes that shrink, and what they shrink to; the kinds of layers, their state and their attention stay.
_SMALLER = {
    **dict.fromkeys(("intermediate_size", "moe_intermediate_size", "shared_expert_intermediate_size"), 32),
    **dict.fromkeys(("ffn_hidden_size", "expert_ffn_hidden_size"), 32),
    **dict.fromkeys(("num_experts", "num_local_experts", "n_routed_experts"), 4),
    **dict.fromkeys(("num_experts_per_tok", "moe_topk"), 2),
    **dict.fromkeys(("bos_token_id", "eos_token_id", "pad_token_id"), 1),
    **dict.fromkeys(("chunk_size", "mamba_chunk_size"), 8),
    **dict.fromkeys(("first_k_dense_replace", "n_group", "topk_group"), 1),
    **dict.fromkeys(("sliding_window", "attention_chunk_size"), 4),
    "num_kv_shared_layers": 0,
    "vocab_size_per_layer_input": VOCABULARY,
    "vocab_size": VOCABULARY,
}
# Number and width of the heads of a recurrent state.
_STATE_HEADS = (("mamba_n_heads", "mamba_d_head"), ("mamba_num_heads", "mamba_head_dim"), ("num_heads", "head_dim"))


def small_config(whole: Any) -> Any | None:
    """The config of a text model with a few small layers, of each kind that `whole` has; None if none can be built."""
    for make in (_tiny, _fewer_layers):
        try:
            text = make(whole)
            hidden_states(build(text, "eager"), torch.zeros(1, 2, dtype=torch.int64))
            return text
        except Exception as error:  # noqa: BLE001 - a config that was made smaller may be refused with anything
            logger.debug("no small %s: %s", whole.model_type, one_line(error))
    return None


def small_whole(whole: Any) -> Any | None:
    """The config of the whole model (text and images, too) around its small text model; None if there is none."""
    own = whole.get_text_config()
    text = small_config(own)
    if text is None or own is whole:
        return text
    small = copy.deepcopy(whole)
    parts = {name: getattr(whole, name, None) for name in whole.sub_configs}
    if not any(part is own for part in parts.values()):
        return None
    for name, part in parts.items():
        setattr(small, name, text if part is own else _of_images(part))
    return small


def _of_images(whole: Any) -> Any:
    """A config with one narrow layer; a check of texts only builds it."""
    part = copy.deepcopy(whole)
    for heads in ("num_heads", "num_attention_heads"):
        if hasattr(part, heads) and hasattr(part, "hidden_size"):
            part.hidden_size = 8 * getattr(part, heads)
    for name, size in {"depth": 1, "num_hidden_layers": 1, "intermediate_size": 32}.items():
        if hasattr(part, name):
            setattr(part, name, size)
    return part


def _fewer_layers(whole: Any) -> Any:
    """A config with one layer of each kind, or with two of a single kind."""
    text = copy.deepcopy(whole)
    for name, size in _SMALLER.items():
        if isinstance(getattr(text, name, None), int):
            setattr(text, name, min(getattr(text, name), size))
    kinds = list(getattr(text, "layer_types", None) or [])
    first = sorted({kinds.index(kind) for kind in kinds}) if len(set(kinds)) > 1 else [0, 1][: len(kinds) or 2]
    for name, value in vars(whole).items():  # what each layer has of its own
        if isinstance(value, list) and len(value) == whole.num_hidden_layers:
            kept, most = [value[place] for place in first], _SMALLER.get(name)
            with suppress(AttributeError):  # in some configs it follows from other fields
                setattr(text, name, kept if most is None else [min(each, most) for each in kept])
    text.num_hidden_layers = len(first)
    return text


def _tiny(whole: Any) -> Any:
    """The same with four heads, and with states as small."""
    text = _fewer_layers(whole)
    heads = getattr(text, "num_attention_heads", None)
    if heads:
        head_dim = getattr(text, "head_dim", None) or text.hidden_size // heads
        groups = max(heads // (getattr(text, "num_key_value_heads", None) or heads), 1)
        text.num_attention_heads, text.hidden_size = 4, 4 * head_dim
        with suppress(AttributeError):  # in some configs it follows from these
            text.head_dim = head_dim
        if hasattr(text, "num_key_value_heads"):
            text.num_key_value_heads = max(4 // groups, 1)
    else:
        text.hidden_size = 256
    for number, width in _STATE_HEADS:
        if hasattr(text, number):
            expand = getattr(text, "mamba_expand", None) or getattr(text, "expand", None) or 1
            setattr(text, number, max(int(expand * text.hidden_size) // getattr(text, width), 1))
    for name in ("linear_num_key_heads", "linear_num_value_heads"):
        if hasattr(text, name):
            setattr(text, name, 2)
    return text


def is_remote(config: Any) -> bool:
    """True if the model's code comes with its checkpoint, and the user trusts it (`trust_remote_code`)."""
    return type(config).__module__.startswith("transformers_modules.")


def build(config: Any, attention: str, auto: Any = None) -> nn.Module:
    """A model in float32, the same each time. `auto`: the auto class of transformers; None: one without a head."""
    from transformers import AutoModel, AutoModelForCausalLM

    remote = is_remote(config)
    auto = auto or (AutoModelForCausalLM if remote else AutoModel)  # such code has one auto class, seldom both
    generator = torch.Generator().manual_seed(1)
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(1)
        built: nn.Module = auto.from_config(
            config=copy.deepcopy(config), attn_implementation=attention, dtype=torch.float32, trust_remote_code=remote
        )
        for parameter in built.parameters():  # large weights, so that a leak is far above rounding
            if parameter.dim() > 1:
                parameter.normal_(0.0, 0.2, generator=generator)
    return built.eval()


def hidden_states(model: nn.Module, ids: Tensor, **kwargs: Any) -> Tensor:
    """The first output for one row, or several of the same length."""
    hidden: Tensor = model(input_ids=ids, use_cache=False, **kwargs)[0]
    return hidden


def distance(found: Tensor, wanted: Tensor) -> float:
    """The relative distance; infinite if it is not a number."""
    size = float((found - wanted).norm().item()) / max(wanted.norm().item(), 1e-6)
    return size if math.isfinite(size) else math.inf  # max() would hide a NaN
