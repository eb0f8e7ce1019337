"""Read from a LoRA adapter's config what changes its answers beyond rank, alpha and the modules that it adapts.

An adapter's `adapter_config.json` has forty options of PEFT, and programs that load it read only some of them. vLLM
takes one rank and one alpha for all modules, and has no patterns, magnitudes (DoRA), biases or whole modules. So an
option that is not known to leave the answers alone must be off.
"""

from collections.abc import Mapping
from typing import Any

# Read by every program, or without effect on an adapter that is loaded.
_PLAIN = frozenset(
    "auto_mapping base_model_name_or_path exclude_modules inference_mode layers_pattern layers_to_transform lora_alpha "
    "lora_dropout megatron_core peft_type peft_version qalora_group_size r revision target_modules task_type".split()
)
_PLAIN_STARTS = ("gaussian", "orthogonal", "eva")  # others, such as pissa, change the base model's weights too


def unusual_options(config: Mapping[str, Any]) -> list[str]:
    """The options of an adapter's config that change its answers, as "name=value"; [] for plain LoRA."""
    kind = str(getattr(config.get("peft_type"), "value", config.get("peft_type") or "LORA"))
    found = [] if kind == "LORA" else [f"peft_type={kind}"]
    for name, value in config.items():
        if name == "init_lora_weights":
            plain = isinstance(value, bool) or value is None or value in _PLAIN_STARTS
        else:
            plain = name in _PLAIN or not value or value == "none"
        if not plain:
            found.append(f"{name}={value}")
    return found
