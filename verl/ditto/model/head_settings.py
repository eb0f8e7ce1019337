"""What of a config decides how log-probs are computed, checked before anything starts.

`model.use_fused_kernels=true` and `model.fused_kernel_options.impl_backend=chunked` is our default on every platform;
`use_fused_kernels=false` builds all logits of a micro-batch, which some models and losses need.
"""

from __future__ import annotations

from typing import Any

from omegaconf import DictConfig

from ditto.settings import BadConfig

INSTALLER = "ditto.model.install"  # what `external_lib` must name
# verl reads them where it has full logits; with a head that makes none they would be accepted and ignored.
OF_FULL_LOGITS = ("entropy_from_logits_with_chunking", "entropy_checkpointing", "calculate_sum_pi_squared")


def check_head(model: DictConfig, training: DictConfig, prefix: str) -> None:
    """Check the model section of a config (`prefix` is its name) against the section that holds `strategy`.

    Raises:
        BadConfig: a head that the model, the sharding or the loss does not go with.
    """
    if not model.use_fused_kernels:
        return
    whole = f"or {prefix}.use_fused_kernels=false (it builds all logits of a micro-batch: 15 GB for 49k tokens)"
    backend = (model.get("fused_kernel_options") or {}).get("impl_backend")
    if backend == "chunked":
        _check_chunked(model, training, prefix, whole)
    elif training.strategy == "fsdp2" and not _config_of(model).tie_word_embeddings:
        raise BadConfig(
            f"{prefix}.fused_kernel_options.impl_backend={backend}: verl's own head reads a sharded weight under FSDP2 "
            f"where head and embedding are not tied, as in {model.path}. Use chunked, {whole}."
        )
    for name in OF_FULL_LOGITS:
        if training.get(name) or (training.get("fsdp_config") or {}).get(name):
            raise BadConfig(
                f"{name}=true is about full logits, and the head that {prefix}.use_fused_kernels=true asks for makes "
                f"none. Drop it, {whole}."
            )


def _check_chunked(model: DictConfig, training: DictConfig, prefix: str, whole: str) -> None:
    from ditto.model.chunked_models import FAMILIES

    libraries = model.get("external_lib") or []
    if INSTALLER not in ([libraries] if isinstance(libraries, str) else libraries):
        raise BadConfig(
            f"{prefix}.external_lib={model.get('external_lib')} does not hold {INSTALLER}, which installs the chunked "
            f"head: use {prefix}.external_lib=[{INSTALLER},your.module], {whole}."
        )
    if training.strategy != "fsdp2":
        raise BadConfig(f"strategy={training.strategy}: the chunked head needs fsdp2. Use it, {whole}.")
    model_type = _config_of(model).model_type
    if model_type not in FAMILIES:
        raise BadConfig(
            f"{prefix}.path={model.path} is a model of type {model_type}; the chunked head knows "
            f"{', '.join(FAMILIES)}. Use {prefix}.use_fused_kernels=false (it builds all logits of a micro-batch, so "
            "lower its tokens too), or add the type to ditto/model/chunked_models.py."
        )


def _config_of(model: DictConfig) -> Any:
    from transformers import AutoConfig

    return AutoConfig.from_pretrained(model.path, trust_remote_code=bool(model.get("trust_remote_code", False)))
