"""Check the settings that decide how log-probs are computed, before anything starts.

The default on every platform is `model.use_fused_kernels=true` with `model.fused_kernel_options.impl_backend=chunked`.
`use_fused_kernels=false` builds all logits of a micro-batch, which some models and losses need.
"""

from __future__ import annotations

from typing import Any

from omegaconf import DictConfig

from ditto.settings import BadConfig

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
    from ditto.model.chunked_models import FAMILIES

    libraries = model.get("external_lib") or []
    if INSTALLER not in ([libraries] if isinstance(libraries, str) else libraries):
        raise BadConfig(
            f"{prefix}.external_lib={model.get('external_lib')} does not contain {INSTALLER}, which installs the "
            f"chunked head. Use {prefix}.external_lib=[{INSTALLER},your.module], {full_logits}."
        )
    model_type = _config_of(model).model_type
    if model_type not in FAMILIES:
        raise BadConfig(
            f"{prefix}.path={model.path} is a model of type {model_type}; the chunked head supports only "
            f"{', '.join(FAMILIES)}. Use {prefix}.use_fused_kernels=false (it builds all logits of a micro-batch, so "
            "lower its tokens too), or add the type to ditto/model/chunked_models.py."
        )


def _config_of(model: DictConfig) -> Any:
    from transformers import AutoConfig

    return AutoConfig.from_pretrained(model.path, trust_remote_code=bool(model.get("trust_remote_code", False)))
