"""Compare rows of a pack with each row alone, in a small model of the run's own class, before an engine starts.

A pack is exact only if nothing in the model runs over the border of two sequences: a recurrent state or a convolution
does, and then every log-prob is wrong in silence. An attention implementation can also drop what a class computes (sdpa
drops Gemma 2's soft cap). So a model with a few layers and random weights, built from the model's own config, reads two
sequences in one row with the configured attention, and each alone with plain attention; outputs and gradients must
agree. It takes a second or two and reads no weights.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator
from typing import Any

import torch
from omegaconf import DictConfig
from torch import Tensor, nn

from ditto.model.small_models import TOLERANCE, VOCABULARY, build, distance, hidden_states, small_config
from ditto.settings import BadConfig
from soul.errors import one_line

logger = logging.getLogger(__name__)
LENGTHS = (7, 9)  # tokens of the two sequences


def check_packing(model: DictConfig, prefix: str) -> None:
    """Check that rows do not influence each other.

    Args:
        model: the model section of the config.
        prefix: its name, for messages.

    Raises:
        BadConfig: they do, or nothing can tell; the message names the settings with which they do not, if any.
    """
    from transformers import AutoConfig

    name = (model.get("override_config") or {}).get("attn_implementation", "sdpa")
    # The kernels of a GPU are tried by attention_check.py. They compute what plain attention does, soft caps included.
    attention = name if name in ("packed", "sdpa", "eager") else "eager"
    packed = bool(model.use_remove_padding)
    trust = bool(model.get("trust_remote_code", False))
    whole = AutoConfig.from_pretrained(model.path, trust_remote_code=trust, local_files_only=True)
    text = small_config(whole.get_text_config())
    if text is None:
        if packed or name != "eager":
            raise BadConfig(
                f"{prefix}.path={model.path}: transformers cannot build a small {whole.model_type} from its config, so "
                f"nothing can check whether its rows influence each other. Set {prefix}.use_remove_padding=false and "
                f"{prefix}.override_config.attn_implementation=eager, for which every class is written."
            )
        return
    error = deviation(text, attention, packed)
    if error <= TOLERANCE:
        return
    ways = [(attention, False), ("eager", True), ("eager", False)]
    works = next((way for way in ways if way != (attention, packed) and deviation(text, *way) <= TOLERANCE), None)
    found = "do not run" if math.isinf(error) else f"differ from each row alone by {error:.2g} of their size"
    raise BadConfig(
        f"{prefix}.path={model.path}: rows of a {text.model_type} influence each other, or attention {name} leaves "
        f"out what the model computes ({'packed' if packed else 'padded'} rows {found}). "
        f"{_remedy(prefix, works, attention)}"
    )


def _remedy(prefix: str, works: tuple[str, bool] | None, attention: str) -> str:
    """The settings with which the rows are exact: an attention, and whether rows are packed."""
    if works is None:
        return "No setting makes them exact, so this model cannot be trained here."
    settings = [f"{prefix}.use_remove_padding={str(works[1]).lower()}"]
    if works[0] != attention:
        settings.append(f"{prefix}.override_config.attn_implementation={works[0]}")
    return f"Set {' and '.join(settings)}, with which they are exact."


def deviation(text: Any, attention: str, packed: bool) -> float:
    """The largest relative error of outputs and gradients, compared with each row alone and plain attention.

    Args:
        text: the config of a small text model.
        packed: both sequences in one row; False: padded rows. What cannot run is infinitely far.
    """
    alone = build(text, "eager")
    try:
        other = build(text, attention)
    except (
        ValueError,
        ImportError,
        KeyError,
    ):  # a class without attention, or without this one, keeps to plain attention
        other = build(text, "eager")
    other.load_state_dict(alone.state_dict())
    ids = [torch.arange(length) * 5 % VOCABULARY + 2 * place for place, length in enumerate(LENGTHS)]
    ids = [each.clamp(max=VOCABULARY - 1)[None] for each in ids]
    wanted = [hidden_states(alone, each)[0] for each in ids]
    try:
        found = list(_packed(other, ids) if packed else _padded(other, ids))
    except (RuntimeError, ValueError, TypeError, AttributeError, KeyError, ImportError) as error:
        logger.debug("%s with attention %s: %s", text.model_type, attention, one_line(error))
        return math.inf
    errors = [distance(a, b) for a, b in zip(found, wanted, strict=True)]
    for outputs in (wanted, found):
        torch.cat(outputs).sin().sum().backward()
    known = dict(alone.named_parameters())
    pairs = ((parameter.grad, known[name].grad) for name, parameter in other.named_parameters())
    errors += [distance(a, b) for a, b in pairs if a is not None and b is not None]
    return max(errors)


def _packed(model: nn.Module, ids: list[Tensor]) -> tuple[Tensor, ...]:
    positions = torch.cat([torch.arange(each.shape[1]) for each in ids])[None]
    return hidden_states(model, torch.cat(ids, 1), position_ids=positions)[0].split(list(LENGTHS))


def _padded(model: nn.Module, ids: list[Tensor]) -> Iterator[Tensor]:
    longest = max(LENGTHS)
    rows = torch.cat([nn.functional.pad(each, (0, longest - each.shape[1])) for each in ids])
    mask = torch.tensor([[1] * length + [0] * (longest - length) for length in LENGTHS])
    hidden = hidden_states(model, rows, attention_mask=mask)
    for row, length in zip(hidden, LENGTHS, strict=True):
        yield row[:length]
