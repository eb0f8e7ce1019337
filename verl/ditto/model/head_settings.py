"""Check the settings that decide how log-probs are computed, before anything starts.

The default on every platform is `model.use_fused_kernels=true` with `model.fused_kernel_options.impl_backend=chunked`.
`use_fused_kernels=false` builds all logits of a micro-batch, which some models and losses need.
"""

from __future__ import annotations

import logging
from typing import Any

import torch
from omegaconf import DictConfig
from torch import Tensor, nn

from ditto.model.chunked_models import with_chunked_head
from ditto.model.small_models import TOLERANCE, VOCABULARY, build, distance, is_remote, small_whole
from ditto.settings import BadConfig
from soul.errors import one_line

logger = logging.getLogger(__name__)

TEMPERATURE = 0.7  # any but 1, so that the check sees whether the head divides by it
INSTALLER = "ditto.model.install"  # `external_lib` must name it
# verl reads these only with full logits; with a head that makes none, it would ignore them.
FULL_LOGITS_KEYS = ("entropy_from_logits_with_chunking", "entropy_checkpointing", "calculate_sum_pi_squared")


def check_head(model: DictConfig, training: DictConfig, prefix: str) -> None:
    """Check that the head works with the model, the sharding and the loss.

    Args:
        model: the model section of the config.
        training: the section of the actor (RL) or of the engine (supervised training).
        prefix: the name of the model section, for messages.

    Raises:
        BadConfig: it does not.
    """
    if not model.use_fused_kernels:
        return
    full_logits = f"or {prefix}.use_fused_kernels=false (it builds all logits of a micro-batch: 15 GB for 49k tokens)"
    backend = (model.get("fused_kernel_options") or {}).get("impl_backend")
    if backend == "chunked":
        _check_chunked(model, prefix, full_logits)
    elif not _config_of(model).tie_word_embeddings:
        raise BadConfig(
            f"{prefix}.fused_kernel_options.impl_backend={backend}: under FSDP2, verl's own head needs a head that is "
            f"tied to the embedding, and {model.path} has an untied one. Use chunked, {full_logits}."
        )
    for name in FULL_LOGITS_KEYS:
        if training.get(name) or (training.get("fsdp_config") or {}).get(name):
            raise BadConfig(
                f"{name}=true needs full logits, but the head of {prefix}.use_fused_kernels=true makes none. Remove "
                f"it, {full_logits}."
            )


def _check_chunked(model: DictConfig, prefix: str, full_logits: str) -> None:
    libraries = model.get("external_lib") or []
    if INSTALLER not in ([libraries] if isinstance(libraries, str) else libraries):
        raise BadConfig(
            f"{prefix}.external_lib={model.get('external_lib')} does not contain {INSTALLER}, which installs the "
            f"chunked head. Use {prefix}.external_lib=[{INSTALLER},your.module], {full_logits}."
        )
    problem = head_problem(_config_of(model))
    if problem is not None:
        raise BadConfig(
            f"{prefix}.path={model.path}: the chunked head is not exact for this model: {problem}. Use "
            f"{prefix}.use_fused_kernels=false (it builds all logits of a micro-batch, so lower its tokens too)."
        )


def head_problem(whole: Any) -> str | None:
    """The reason why the chunked head is not exact for a model with this config; None if it is.

    A small model of the model's own class tells: its logits must be `lm_head` of the output of `model`, and log-probs,
    entropy and gradients of the chunked head must be those of full logits.
    """
    from transformers import MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING, AutoModelForCausalLM, AutoModelForImageTextToText

    if is_remote(whole):
        return "its code comes with the checkpoint"
    auto = AutoModelForImageTextToText if type(whole) in MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING else AutoModelForCausalLM
    small, ids = small_whole(whole), torch.arange(9)[None] * 5 % VOCABULARY
    seen: dict[str, Tensor] = {}
    try:
        model: Any = build(small, "eager", auto)
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


def _config_of(model: DictConfig) -> Any:
    from transformers import AutoConfig

    return AutoConfig.from_pretrained(model.path, trust_remote_code=bool(model.get("trust_remote_code", False)))
