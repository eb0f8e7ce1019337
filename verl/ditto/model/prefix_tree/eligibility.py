"""Decide if a run computes the rows of a group as a tree (`algorithm.prefix_tree`): wherever that is exact."""

from __future__ import annotations

from collections.abc import Iterator

from omegaconf import DictConfig

from ditto.model import attention
from ditto.model.head_settings import INSTALLER
from ditto.settings import Settings

TESTED = ("llama", "qwen2", "qwen3", "qwen3_vl")  # types of models whose trees tests compare with their rows


def ineligible_reason(config: DictConfig, settings: Settings) -> str | None:
    """The reason why this run computes every row on its own; None if it computes trees."""
    if settings.options.prefix_tree == "off":
        return "algorithm.prefix_tree=off"
    return next(_reasons(config, settings), None)


def _reasons(config: DictConfig, settings: Settings) -> Iterator[str]:
    """The reasons against trees, one after the other."""
    model, actor = config.actor_rollout_ref.model, config.actor_rollout_ref.actor
    if settings.objective.distillation is not None:
        yield f"objective {settings.objective.name} runs a teacher on each row"
    if not model.use_remove_padding:
        yield "micro-batches are padded (model.use_remove_padding=false)"
    libraries = model.get("external_lib") or []
    name = (model.get("override_config") or {}).get("attn_implementation")
    if name != attention.NAME or INSTALLER not in ([libraries] if isinstance(libraries, str) else libraries):
        yield f"attention is {name}, and only {attention.NAME} of {INSTALLER} knows trees"
    if model.use_fused_kernels and (model.get("fused_kernel_options") or {}).get("impl_backend") != "chunked":
        yield "verl's own head computes all tokens (fused_kernel_options.impl_backend; use chunked)"
    # The reference policy gets the same batches, in an engine of its own.
    for name, engine in (("actor", actor.fsdp_config), ("ref", config.actor_rollout_ref.ref.fsdp_config)):
        if engine.get("pad_to_length") or config.actor_rollout_ref[name].get("pad_to_length"):
            yield f"micro-batches are padded ({name}.pad_to_length=true)"
        dtype = str((engine.get("mixed_precision") or {}).get("param_dtype", "bf16"))
        if config.trainer.device != "cpu" and dtype in ("fp32", "float32"):
            yield f"on a GPU the kernel computes in bfloat16 or float16 ({name}: mixed_precision.param_dtype)"
    yield from _of_model(model)


def _of_model(model: DictConfig) -> Iterator[str]:
    """The reasons of the model against trees."""
    from peft import PeftConfig
    from transformers import AutoConfig

    overrides = model.get("override_config") or {}
    whole = AutoConfig.from_pretrained(model.path, trust_remote_code=bool(model.get("trust_remote_code", False)))
    text = whole.get_text_config()
    if whole.model_type not in TESTED:
        yield f"trees are only tested for {', '.join(TESTED)}, not for {whole.model_type}"
    if any(kind != "full_attention" for kind in getattr(text, "layer_types", None) or []):
        yield "the model has a sliding window"
    if overrides.get("attention_dropout", getattr(text, "attention_dropout", 0.0)):
        yield "the model is trained with attention dropout"
    adapter = model.get("lora_adapter_path")
    if adapter and getattr(PeftConfig.from_pretrained(adapter), "lora_dropout", 0.0):
        yield f"the adapter {adapter} is trained with dropout"
