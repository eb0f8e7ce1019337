"""Compare a small model of the run's own class with itself computed plainly, before an engine starts.

A pack is exact only if nothing in the model runs over the border of two sequences: a recurrent state or a convolution
does, and then every log-prob is wrong in silence. An attention implementation can also drop what a class computes (sdpa
drops Gemma 2's soft cap), and the chunked head is exact only where logits are the output of `lm_head`. So a model with
a few layers and random weights, built from the model's own config, computes both ways; outputs and gradients must
agree. It takes a second or two and reads no weights.
"""

import copy
import logging
import math
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import torch
from omegaconf import DictConfig
from torch import Tensor, nn

from ditto.model.chunked_head import with_chunked_head
from ditto.settings import BadConfig
from soul.errors import one_line

logger = logging.getLogger(__name__)
VOCABULARY = 64
TOLERANCE = 1e-3  # relative, of outputs and gradients in float32
LENGTHS = (7, 9)  # tokens of the two sequences of a pack
TEMPERATURE = 0.7  # any but 1, so that the check sees whether the head divides by it
INSTALLER = "ditto.model.install"  # `external_lib` must name it


# ---- rows of a pack ------------------------------------------------------------------------------------------------


def check_packing(model: DictConfig, prefix: str) -> None:
    """Check that rows do not influence each other, by the config's model section and its name for messages.

    Raises:
        BadConfig: they do, or nothing can tell; the message names the settings with which they do not, if any.
    """
    name = (model.get("override_config") or {}).get("attn_implementation", "sdpa")
    # The kernels of a GPU compute what plain attention does, soft caps included.
    attention, packed = name if name in ("packed", "sdpa", "eager") else "eager", bool(model.use_remove_padding)
    whole = _config_of(model)
    text = small_config(whole.get_text_config())
    if text is None and not packed and name == "eager":
        return  # nothing can tell, but every class is written for this
    error = math.inf if text is None else deviation(text, attention, packed)
    if error <= TOLERANCE:
        return
    ways = [(attention, False), ("eager", True), ("eager", False)]
    exact = (way for way in ways if way != (attention, packed) and deviation(text, *way) <= TOLERANCE)
    works = ("eager", False) if text is None else next(exact, None)
    remedy = "No setting makes them exact, so this model cannot be trained here."
    if works is not None:
        settings = [f"{prefix}.use_remove_padding={str(works[1]).lower()}"]
        if works[0] != name:
            settings.append(f"{prefix}.override_config.attn_implementation={works[0]}")
        remedy = f"Set {' and '.join(settings)}, with which they are exact."
    raise BadConfig(
        f"{prefix}.path={model.path}: {'packed' if packed else 'padded'} rows of a {whole.model_type} differ from each "
        f"row alone by {error:.2g} of their size. They influence each other, or attention {name} leaves out what the "
        f"model computes, or its class cannot be built small to check it. {remedy}"
    )


def deviation(text: Any, attention: str, packed: bool) -> float:
    """The largest relative error of outputs and gradients, compared with each row alone and plain attention.

    Args:
        text: the config of a small text model.
        packed: both sequences in one row; False: padded rows. What cannot run is infinitely far.
    """
    alone = build(text, "eager")
    try:
        other = build(text, attention)
    except (ValueError, ImportError, KeyError):  # a class without this attention keeps to plain attention
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
    return max(errors + [distance(a, b) for a, b in pairs if a is not None and b is not None])


def _packed(model: nn.Module, ids: list[Tensor]) -> tuple[Tensor, ...]:
    positions = torch.cat([torch.arange(each.shape[1]) for each in ids])[None]
    return hidden_states(model, torch.cat(ids, 1), position_ids=positions)[0].split(list(LENGTHS))


def _padded(model: nn.Module, ids: list[Tensor]) -> Iterator[Tensor]:
    longest = max(LENGTHS)
    rows = torch.cat([nn.functional.pad(each, (0, longest - each.shape[1])) for each in ids])
    mask = torch.tensor([[1] * length + [0] * (longest - length) for length in LENGTHS])
    for row, length in zip(hidden_states(model, rows, attention_mask=mask), LENGTHS, strict=True):
        yield row[:length]


# ---- the head ------------------------------------------------------------------------------------------------------


def check_head(model: DictConfig, prefix: str) -> None:
    """Check that the head works with the model, by the config's model section and its name for messages."""
    if not model.use_fused_kernels:
        return
    remedy = f"{prefix}.use_fused_kernels=false (it builds all logits of a micro-batch: 15 GB for 49k tokens)"
    libraries = model.get("external_lib") or []
    backend = (model.get("fused_kernel_options") or {}).get("impl_backend")
    if backend != "chunked" or INSTALLER not in ([libraries] if isinstance(libraries, str) else libraries):
        raise BadConfig(
            f"{prefix}.fused_kernel_options.impl_backend={backend} with {prefix}.external_lib={libraries}: use "
            f"chunked, which {prefix}.external_lib=[{INSTALLER},your.module] installs, or {remedy}."
        )
    if problem := head_problem(_config_of(model)):
        raise BadConfig(
            f"{prefix}.path={model.path}: the chunked head is not exact for this model: {problem}. Use {remedy}."
        )


def head_problem(whole: Any) -> str | None:
    """The reason why the chunked head is not exact for a model with this config; None if it is."""
    from transformers import MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING, AutoModelForCausalLM, AutoModelForImageTextToText

    if _is_remote(whole):
        return "its code comes with the checkpoint"
    auto = AutoModelForImageTextToText if type(whole) in MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING else AutoModelForCausalLM
    ids, seen = torch.arange(9)[None] * 5 % VOCABULARY, dict[str, Tensor]()
    try:
        model: Any = build(_small_whole(whole), "eager", auto)
        if not (hasattr(model, "model") and hasattr(model, "lm_head")):
            return f"its class {type(model).__name__} has no `lm_head` behind `model`"
        model.model.register_forward_hook(lambda _module, _inputs, output: seen.update(hidden=output[0]))
        model.lm_head.register_forward_hook(lambda _module, inputs, output: seen.update(read=inputs[0], made=output))
        full = model(input_ids=ids, use_cache=False).logits
    except Exception as error:  # noqa: BLE001 - a config that was made smaller, or is None, is refused with anything
        logger.debug("no small %s with a head: %s", whole.model_type, one_line(error))
        return "transformers cannot build a small model from its config, which would check it"
    if not (seen.keys() >= {"hidden", "made"} and seen["hidden"].equal(seen["read"]) and full.equal(seen["made"])):
        return f"its class {type(model).__name__} scales or caps its logits, or makes them otherwise than by `lm_head`"
    scores = torch.log_softmax(full / TEMPERATURE, dim=-1)
    log_probs = scores.gather(-1, ids.roll(-1, -1)[..., None]).squeeze(-1)
    wanted = _values_and_gradients(model, log_probs, -(scores.exp() * scores).sum(-1))
    model.__class__ = with_chunked_head(type(model))
    chunked = model(input_ids=ids, use_cache=False, temperature=TEMPERATURE)
    found = _values_and_gradients(model, chunked.log_probs, chunked.entropy)
    furthest = max(distance(found[name], value) for name, value in wanted.items())
    return None if furthest <= TOLERANCE else f"log-probs or gradients differ by {furthest:.2g} of their size"


def _values_and_gradients(model: nn.Module, log_probs: Tensor, entropy: Tensor) -> dict[str, Tensor]:
    """Both outputs, and the gradient of each parameter under a loss of both."""
    model.zero_grad()
    (log_probs.sin() + entropy).sum().backward()
    gradients = {name: parameter.grad for name, parameter in model.named_parameters() if parameter.grad is not None}
    return {"log-probs": log_probs.detach(), "entropy": entropy.detach(), **gradients}


# ---- small models --------------------------------------------------------------------------------------------------

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


def _small_whole(whole: Any) -> Any:
    """The config of the whole model (text and images, too) around its small text model; None if there is none."""
    own = whole.get_text_config()
    text = small_config(own)
    if text is None or own is whole:
        return text
    small = copy.deepcopy(whole)
    for name in whole.sub_configs:
        part = copy.deepcopy(getattr(whole, name, None))
        for heads in ("num_heads", "num_attention_heads"):  # a check of texts only builds the part for images
            if part is not None and hasattr(part, heads) and hasattr(part, "hidden_size"):
                part.hidden_size = 8 * getattr(part, heads)
        for size, value in {"depth": 1, "num_hidden_layers": 1, "intermediate_size": 32}.items():
            if hasattr(part, size):
                setattr(part, size, value)
        setattr(small, name, text if getattr(whole, name, None) is own else part)
    return small


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


def _is_remote(config: Any) -> bool:
    """True if the model's code comes with its checkpoint, and the user trusts it (`trust_remote_code`)."""
    return type(config).__module__.startswith("transformers_modules.")


def build(config: Any, attention: str, auto: Any = None) -> nn.Module:
    """A model in float32, the same each time. `auto`: the auto class of transformers; None: one without a head."""
    from transformers import AutoModel, AutoModelForCausalLM

    remote = _is_remote(config)
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


def _config_of(model: DictConfig) -> Any:
    from transformers import AutoConfig

    trust = bool(model.get("trust_remote_code", False))
    return AutoConfig.from_pretrained(model.path, trust_remote_code=trust, local_files_only=True)
