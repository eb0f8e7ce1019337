"""Compare rows of a pack with each row alone, in a small model of the run's own class, before an engine starts.

A pack is exact only if nothing in the model runs over the border of two sequences: a recurrent state or a convolution
does, and then every log-prob is wrong in silence. An attention implementation can also drop what a class computes (sdpa
drops Gemma 2's soft cap). So a model with a few layers and random weights, built from the model's own config, reads two
sequences in one row with the configured attention, and each alone with plain attention; outputs and gradients must
agree. It takes a second or two and reads no weights.
"""

from __future__ import annotations

import copy
import logging
import math
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import torch
from omegaconf import DictConfig, OmegaConf
from torch import Tensor, nn

from ditto.settings import BadConfig
from soul.errors import one_line

logger = logging.getLogger(__name__)
LENGTHS = (7, 9)  # tokens of the two sequences
VOCABULARY = 64
TOLERANCE = 1e-3  # relative, of outputs and gradients in float32
# Sizes that shrink, and what they shrink to; the kinds of layers, their state and their attention stay.
_SMALLER = {
    **dict.fromkeys(("intermediate_size", "moe_intermediate_size", "shared_expert_intermediate_size"), 32),
    **dict.fromkeys(("num_experts", "num_local_experts", "n_routed_experts"), 4),
    **dict.fromkeys(("num_experts_per_tok", "moe_topk"), 2),
    **dict.fromkeys(("bos_token_id", "eos_token_id", "pad_token_id"), 1),
    **dict.fromkeys(("chunk_size", "mamba_chunk_size"), 8),
    "vocab_size": VOCABULARY,
}
# Number and width of the heads of a recurrent state.
_STATE_HEADS = (("mamba_n_heads", "mamba_d_head"), ("mamba_num_heads", "mamba_head_dim"), ("num_heads", "head_dim"))


def check_packing(config: DictConfig) -> None:
    """Check that rows do not influence each other.

    Args:
        config: the config of RL (`actor_rollout_ref.model`) or of supervised training (`model`).

    Raises:
        BadConfig: they do; the message names the settings with which they do not, if there are any.
    """
    section = "actor_rollout_ref.model" if "actor_rollout_ref" in config else "model"
    model = OmegaConf.select(config, section)
    name = (model.get("override_config") or {}).get("attn_implementation", "sdpa")
    # The kernels of a GPU are tried by attention_check.py. They compute what plain attention does, soft caps included.
    attention = name if name in ("packed", "sdpa", "eager") else "eager"
    from transformers import AutoConfig

    trust = bool(model.get("trust_remote_code", False))
    whole = AutoConfig.from_pretrained(model.path, trust_remote_code=trust, local_files_only=True)
    text = small_config(whole.get_text_config())
    if text is None:
        logger.warning("Skipped the check of packed rows: no small model of %s can be built", model.path)
        return
    packed = bool(model.use_remove_padding)
    error = deviation(text, attention, packed)
    if error <= TOLERANCE:
        return
    ways = [(attention, False), ("eager", True), ("eager", False)]
    works = next((way for way in ways if way != (attention, packed) and deviation(text, *way) <= TOLERANCE), None)
    raise BadConfig(
        f"{section}.path={model.path}: rows of a {text.model_type} influence each other, or attention {name} leaves "
        f"out what the model computes ({'packed' if packed else 'padded'} rows differ from each row alone by "
        f"{error:.2g} of their size). {_remedy(section, works, attention)}"
    )


def _remedy(section: str, works: tuple[str, bool] | None, attention: str) -> str:
    """The settings with which the rows are exact: an attention, and whether rows are packed."""
    if works is None:
        return "No setting makes them exact, so this model cannot be trained here."
    settings = [f"{section}.use_remove_padding={str(works[1]).lower()}"]
    if works[0] != attention:
        settings.append(f"{section}.override_config.attn_implementation={works[0]}")
    return f"Set {' and '.join(settings)}, with which they are exact."


def deviation(text: Any, attention: str, packed: bool) -> float:
    """The largest relative error of outputs and gradients, compared with each row alone and plain attention.

    Args:
        text: the config of a small text model.
        packed: both sequences in one row; False: padded rows. What cannot run is infinitely far.
    """
    alone = _build(text, "eager")
    try:
        other = _build(text, attention)
    except (
        ValueError,
        ImportError,
        KeyError,
    ):  # a class without attention, or without this one, keeps to plain attention
        other = _build(text, "eager")
    other.load_state_dict(alone.state_dict())
    ids = [torch.arange(length) * 5 % VOCABULARY + 2 * place for place, length in enumerate(LENGTHS)]
    ids = [each.clamp(max=VOCABULARY - 1)[None] for each in ids]
    wanted = [_hidden(alone, each)[0] for each in ids]
    try:
        found = list(_packed(other, ids) if packed else _padded(other, ids))
    except (RuntimeError, ValueError, TypeError, AttributeError, KeyError, ImportError) as error:
        logger.debug("%s with attention %s: %s", text.model_type, attention, one_line(error))
        return math.inf
    errors = [_distance(a, b) for a, b in zip(found, wanted, strict=True)]
    for outputs in (wanted, found):
        torch.cat(outputs).sin().sum().backward()
    known = dict(alone.named_parameters())
    pairs = ((parameter.grad, known[name].grad) for name, parameter in other.named_parameters())
    errors += [_distance(a, b) for a, b in pairs if a is not None and b is not None]
    return max(errors)


def small_config(whole: Any) -> Any | None:
    """The config of a text model with a few small layers, of each kind that `whole` has; None if none can be built."""
    for make in (_tiny, _fewer_layers):
        try:
            text = make(whole)
            _hidden(_build(text, "eager"), torch.zeros(1, 2, dtype=torch.int64))
            return text
        except Exception as error:  # noqa: BLE001 - a config that was made smaller may be refused with anything
            logger.debug("no small %s: %s", whole.model_type, one_line(error))
    return None


def _fewer_layers(whole: Any) -> Any:
    """A config with one layer of each kind, or with two of a single kind."""
    text = copy.deepcopy(whole)
    for name, size in _SMALLER.items():
        if isinstance(getattr(text, name, None), int):
            setattr(text, name, min(getattr(text, name), size))
    kinds = list(getattr(text, "layer_types", None) or [])
    first = sorted({kinds.index(kind) for kind in kinds}) if len(set(kinds)) > 1 else [0, 1][: len(kinds) or 2]
    if kinds:
        with suppress(AttributeError):  # in some configs it follows from other fields
            text.layer_types = [kinds[place] for place in first]
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


def _build(text: Any, attention: str) -> nn.Module:
    from transformers import AutoModel

    built: nn.Module = AutoModel.from_config(
        config=copy.deepcopy(text), attn_implementation=attention, dtype=torch.float32
    )
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():  # large weights, so that a leak is far above rounding
        for parameter in built.parameters():
            if parameter.dim() > 1:
                parameter.normal_(0.0, 0.2, generator=generator)
    return built.eval()


def _hidden(model: nn.Module, ids: Tensor, **kwargs: Any) -> Tensor:
    hidden: Tensor = model(input_ids=ids, use_cache=False, **kwargs)[0]
    return hidden


def _packed(model: nn.Module, ids: list[Tensor]) -> tuple[Tensor, ...]:
    positions = torch.cat([torch.arange(each.shape[1]) for each in ids])[None]
    return _hidden(model, torch.cat(ids, 1), position_ids=positions)[0].split(list(LENGTHS))


def _padded(model: nn.Module, ids: list[Tensor]) -> Iterator[Tensor]:
    longest = max(LENGTHS)
    rows = torch.cat([nn.functional.pad(each, (0, longest - each.shape[1])) for each in ids])
    mask = torch.tensor([[1] * length + [0] * (longest - length) for length in LENGTHS])
    hidden = _hidden(model, rows, attention_mask=mask)
    for row, length in zip(hidden, LENGTHS, strict=True):
        yield row[:length]


def _distance(found: Tensor, wanted: Tensor) -> float:
    distance = float((found - wanted).norm().item()) / max(wanted.norm().item(), 1e-6)
    return distance if math.isfinite(distance) else math.inf  # max() would hide a NaN
