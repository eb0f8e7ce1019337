"""Check that sampling, checkpoints and exports can have the LoRA adapter that a run trains.

The trained model, the adapter in vLLM, the merged weights and the exported adapter must give the same log-probs. They
do for plain LoRA on linear layers: weight + alpha / rank * B A, with one rank and one alpha for all of them.
"""

from __future__ import annotations

import difflib
import warnings
from typing import Any

from omegaconf import DictConfig, OmegaConf

from ditto.memory.model_shape import Adapted, build_on_meta
from ditto.settings import BadConfig
from soul.errors import one_line
from soul.files.lora_adapter import unusual_options

_MERGE = (
    "Merge the adapter into its base model (peft: PeftModel.from_pretrained(base, adapter).merge_and_unload()), and "
    "train from the merged model"
)


def check_adapter(model: DictConfig, section: str) -> list[str]:
    """Check the adapter of a run before any process of it starts. Builds the model without its weights.

    Args:
        model: the model section of the config.
        section: its name, for messages.

    Returns:
        The names of the layers that LoRA adapts, each kind once; empty without LoRA.

    Raises:
        BadConfig: the adapter to start from is not plain LoRA, or has another rank or alpha than the run; or a layer is
            adapted that cannot be merged.
    """
    if not model.lora_rank:
        return []
    config = _config_to_start_from(model, section) if model.lora_adapter_path else _new_config(model)
    adapted, wrong = _adapted_layers(model, config, section)
    if wrong:
        kinds = {name.rpartition(".")[2] for name in wrong}
        fit = sorted({name.rpartition(".")[2] for name in adapted} - kinds - {"base_layer"})
        remedy = f"Set {section}.target_modules=[{','.join(fit)}]" if fit else "Name such layers in target_modules"
        more = f" and {len(wrong) - 1} more" if len(wrong) > 1 else ""
        raise BadConfig(
            f"{section}.target_modules={model.target_modules}: LoRA would adapt {wrong[0]}{more}, which vLLM and the "
            f"exported model cannot have: only linear layers whose weights are their own. {remedy}."
        )
    if not adapted:
        raise BadConfig(f"{section}.target_modules={model.target_modules}: LoRA would adapt no layer of {model.path}.")
    return sorted({name.rpartition(".")[2] for name in adapted})


def _new_config(model: DictConfig) -> Any:
    from peft import LoraConfig

    values = {name: model.get(name) for name in ("target_modules", "exclude_modules")}
    plain = {
        name: OmegaConf.to_object(value) if OmegaConf.is_config(value) else value for name, value in values.items()
    }
    return LoraConfig(task_type="CAUSAL_LM", r=int(model.lora_rank), lora_alpha=int(model.lora_alpha), **plain)


def _config_to_start_from(model: DictConfig, section: str) -> Any:
    """The config of the adapter in `lora_adapter_path`."""
    from peft import PeftConfig

    path, setting = str(model.lora_adapter_path), f"{section}.lora_adapter_path={model.lora_adapter_path}"
    try:
        config = PeftConfig.from_pretrained(path)
    except Exception as error:  # noqa: BLE001 - a damaged folder makes peft raise anything
        raise BadConfig(f"{setting}: this is not a LoRA adapter ({one_line(error, 200)}).") from error
    if unusual := unusual_options(config.to_dict()):
        raise BadConfig(
            f"{setting}: the adapter has {', '.join(unusual)}. Sampling, checkpoints and exports know plain LoRA only "
            f"(weight + alpha / rank * B A), and would compute another model than the trained one. {_MERGE}."
        )
    for key, name, value in (("lora_rank", "r", config.r), ("lora_alpha", "lora_alpha", config.lora_alpha)):
        if model[key] != value:
            remedy = f"Set {section}.{key}={value}" if value == int(value) else _MERGE
            raise BadConfig(f"{section}.{key}={model[key]}: the adapter {path} has {name}={value}. {remedy}.")
    return config


def _adapted_layers(model: DictConfig, config: Any, section: str) -> tuple[list[str], list[str]]:
    """The names of the layers that LoRA adapts, and of those among them that cannot be merged or served."""
    import torch
    from peft import get_peft_model
    from peft.tuners.lora import Linear, LoraLayer
    from transformers import AutoConfig

    trust = bool(model.get("trust_remote_code", False))
    model_config = AutoConfig.from_pretrained(str(model.path), trust_remote_code=trust)
    built = build_on_meta(model_config, trust)
    _check_targets(built, model, section)
    head = built.get_output_embeddings() if model_config.get_text_config().tie_word_embeddings else None
    try:
        with torch.device("meta"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            adapted = get_peft_model(built, config, low_cpu_mem_usage=True)
    except ValueError as error:  # peft: no module matches, or one is of a kind that LoRA cannot adapt
        raise BadConfig(f"{section}.target_modules={model.target_modules}: {one_line(error, 300)}.") from error
    layers = {name: layer for name, layer in adapted.named_modules() if isinstance(layer, LoraLayer)}
    wrong = [
        name.removeprefix("base_model.model.")
        for name, layer in layers.items()
        if type(layer) is not Linear
        or not isinstance(layer.get_base_layer(), torch.nn.Linear)
        or layer.get_base_layer() is head
    ]
    return list(layers), wrong


def _check_targets(built: Any, model: DictConfig, section: str) -> None:
    """Refuse a name among the targets that no layer has: peft leaves it out if another one matches."""
    targets = model.target_modules
    if targets in (None, "all-linear"):
        return
    weights = {name: getattr(module, "weight", None) for name, module in built.named_modules()}
    layers = [name for name, weight in weights.items() if weight is not None and weight.ndim == 2]
    last = sorted({name.rpartition(".")[2] for name in layers})
    for target in [targets] if isinstance(targets, str) else [[name] for name in targets]:
        if any(name in Adapted(target) for name in layers):
            continue
        text = target if isinstance(target, str) else target[0]
        near = difflib.get_close_matches(text, last, n=1)
        hint = f"Did you mean {near[0]}? " if near else ""
        raise BadConfig(
            f"{section}.target_modules: {text!r} matches no linear layer of {model.path}. {hint}It has "
            f"{', '.join(last)}; all-linear adapts all of them but the head."
        )
