"""Check that sampling, checkpoints and exports can have the LoRA adapter that a run trains.

The trained model, the adapter in vLLM, the merged weights and the exported adapter must give the same log-probs. They
do for plain LoRA on linear layers: weight + alpha / rank * B A, with one rank and one alpha for all of them.
"""

import warnings
from typing import Any

from omegaconf import DictConfig, OmegaConf

from ditto.memory.estimate import build_on_meta
from ditto.settings import BadConfig
from soul.errors import one_line
from soul.files.lora_adapter import unusual_options


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
    import torch
    from peft import get_peft_model
    from peft.tuners.lora import Linear, LoraLayer
    from transformers import AutoConfig

    if not model.lora_rank:
        return []
    setting, trust = f"{section}.target_modules={model.target_modules}", bool(model.get("trust_remote_code", False))
    model_config = AutoConfig.from_pretrained(str(model.path), trust_remote_code=trust)
    built = build_on_meta(model_config, trust)
    lora = _config_to_start_from(model, section) if model.lora_adapter_path else _new_config(model, built, section)
    head = built.get_output_embeddings() if model_config.get_text_config().tie_word_embeddings else None
    try:
        with torch.device("meta"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            adapted = get_peft_model(built, lora, low_cpu_mem_usage=True)
    except ValueError as error:  # no module matches, or one is of a kind that LoRA cannot adapt
        raise BadConfig(f"{setting}: {one_line(error, 300)}.") from error
    layers = {name: layer for name, layer in adapted.named_modules() if isinstance(layer, LoraLayer)}
    wrong = [
        name.removeprefix("base_model.model.")
        for name, layer in layers.items()
        if type(layer) is not Linear
        or not isinstance(layer.get_base_layer(), torch.nn.Linear)
        or layer.get_base_layer() is head
    ]
    kinds = {name.rpartition(".")[2] for name in layers}
    if wrong:
        fit = sorted(kinds - {name.rpartition(".")[2] for name in wrong} - {"base_layer"})
        raise BadConfig(
            f"{setting}: LoRA would adapt {wrong[0]} and {len(wrong) - 1} more, but vLLM and exports need linear "
            f"layers whose weights are their own. Set {section}.target_modules=[{','.join(fit)}]."
        )
    return sorted(kinds)


def _new_config(model: DictConfig, built: Any, section: str) -> Any:
    """The config of a new adapter. A name that no layer has is refused: peft leaves it out if another one matches."""
    from peft import LoraConfig
    from peft.tuners.tuners_utils import check_target_module_exists

    targets, exclude = (
        OmegaConf.to_object(value) if OmegaConf.is_config(value) else value
        for value in (model.get("target_modules"), model.get("exclude_modules"))
    )
    layers = [name for name, module in built.named_modules() if getattr(module, "weight", None) is not None]
    for target in targets if isinstance(targets, list) else []:
        if not any(check_target_module_exists(LoraConfig(target_modules=[target]), name) for name in layers):
            known = sorted({name.rpartition(".")[2] for name in layers if built.get_submodule(name).weight.ndim == 2})
            raise BadConfig(
                f"{section}.target_modules: {target!r} matches no linear layer of {model.path}. It has "
                f"{', '.join(known)}; all-linear adapts all of them but the head."
            )
    sizes = {"r": int(model.lora_rank), "lora_alpha": int(model.lora_alpha)}
    return LoraConfig(task_type="CAUSAL_LM", **sizes, target_modules=targets, exclude_modules=exclude)


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
            f"{setting}: the adapter has {', '.join(unusual)}, but sampling and exports know plain LoRA only. Train "
            "from the merged model (peft: PeftModel.from_pretrained(base, adapter).merge_and_unload())."
        )
    if (config.r, config.lora_alpha) != (model.lora_rank, model.lora_alpha):
        raise BadConfig(
            f"{setting}: the adapter has r={config.r} and lora_alpha={config.lora_alpha}. Set "
            f"{section}.lora_rank={config.r} and {section}.lora_alpha={config.lora_alpha}."
        )
    return config
