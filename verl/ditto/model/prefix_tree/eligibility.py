"""Decide if a run computes the rows of a group as a tree (`algorithm.prefix_tree`): wherever that is exact."""

from omegaconf import DictConfig

from ditto.model import attention
from ditto.settings import Settings

TESTED = ("llama", "qwen2", "qwen3", "qwen3_vl")  # types of models whose trees tests compare with their rows


def ineligible_reason(config: DictConfig, settings: Settings) -> str | None:
    """The reason why this run computes every row on its own; None if it computes trees."""
    from peft import PeftConfig
    from transformers import AutoConfig

    ref, trust = config.actor_rollout_ref, bool(config.actor_rollout_ref.model.get("trust_remote_code", False))
    overrides = ref.model.get("override_config") or {}
    whole = AutoConfig.from_pretrained(ref.model.path, trust_remote_code=trust)
    text, name = whole.get_text_config(), overrides.get("attn_implementation")
    # The reference policy gets the same batches, in an engine of its own.
    sections = [part.fsdp_config for part in (ref.actor, ref.ref)]
    dtypes = {str((section.get("mixed_precision") or {}).get("param_dtype", "bf16")) for section in sections}
    kinds, adapter = getattr(text, "layer_types", None) or [], ref.model.get("lora_adapter_path")
    dropout = overrides.get("attention_dropout", getattr(text, "attention_dropout", 0.0))
    if adapter:
        dropout = dropout or getattr(PeftConfig.from_pretrained(adapter), "lora_dropout", 0.0)
    reasons = {
        "algorithm.prefix_tree=off": settings.options.prefix_tree == "off",
        "an objective runs a teacher on each row": any(each.distillation for each in settings.objectives),
        "micro-batches are padded (model.use_remove_padding=false)": not ref.model.use_remove_padding,
        f"attention is {name}, and only {attention.NAME} knows trees": name != attention.NAME,
        "on a GPU the kernel computes in bfloat16 or float16 (mixed_precision.param_dtype)": (
            config.trainer.device != "cpu" and bool(dtypes & {"fp32", "float32"})
        ),
        f"trees are only tested for {', '.join(TESTED)}, not for {whole.model_type}": whole.model_type not in TESTED,
        "the model has a sliding window": any(kind != "full_attention" for kind in kinds),
        "the model or its adapter is trained with dropout": bool(dropout),
    }
    return next((reason for reason, holds in reasons.items() if holds), None)
