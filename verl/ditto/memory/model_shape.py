"""The shape of a model: how many weights each part has, and how wide its activations are.

transformers builds the model on the meta device, where tensors have a shape but no storage, and we count the weights
there. The count is exact for every architecture, including biases and vision towers, and takes at most a second.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

if TYPE_CHECKING:
    from omegaconf import DictConfig
    from peft import LoraConfig

GIB = 1024**3


class NotDense(ValueError):
    """The model is not a dense decoder: it has parts, such as experts, whose memory the plan cannot compute."""


@dataclass(frozen=True)
class ModelShape:
    """A dense decoder, with or without a vision tower.

    FSDP2 gathers the weights of one unit at a time. Units are the decoder layers, the blocks of a vision tower and, if
    the head is not tied to the embedding, the embedding and the head. All other weights belong to the root, which stays
    gathered during a whole forward or backward pass.
    """

    name: str
    hidden: int
    intermediate: int  # of the MLP, or of all experts together that a token uses
    query: int  # attention heads x head width
    key_value: int  # key-value heads x head width
    vocab: int
    layers: int
    tied: bool  # head and embedding share their weight
    qk_norm: bool  # queries and keys are normalised, in float32
    tensors: Mapping[int, int]  # number of elements -> number of tensors of that size; a tied embedding counts once
    layer_weights: int  # per decoder layer
    root_weights: int  # final norm, a vision tower's weights outside its blocks, and a tied embedding
    layer_features: int  # inputs + outputs, summed over one decoder layer's linear maps that LoRA adapts
    other_features: int  # the same for all adapted linear maps outside the decoder layers

    @property
    def embedding(self) -> int:
        """Number of weights of the embedding; the head has as many."""
        return self.vocab * self.hidden

    @property
    def weights(self) -> int:
        """Number of all weights, without adapters."""
        return sum(elements * count for elements, count in self.tensors.items())

    def layer_adapter(self, rank: int) -> int:
        """Number of weights that LoRA adds to one decoder layer: A has rank x inputs, B has outputs x rank."""
        return rank * self.layer_features

    def adapter(self, rank: int) -> int:
        """Number of weights that LoRA adds to the model."""
        return rank * (self.layers * self.layer_features + self.other_features)


def read_shape(model: DictConfig, section: str, dense_only: bool = True) -> ModelShape:
    """The shape of the model of a config's section; its path is a local folder or an id in the hub's cache.

    Args:
        dense_only: refuse a mixture of experts. Otherwise it is taken for a dense model, as wide as the experts that a
            token uses.

    Raises:
        BadConfig: the plan does not support the model.
    """
    # Here, not at the top: benchmarks read a shape on machines that have only torch, transformers and peft.
    from omegaconf import OmegaConf
    from peft import LoraConfig
    from transformers import AutoConfig

    from ditto.settings import BadConfig

    targets, exclude = (
        OmegaConf.to_container(value) if OmegaConf.is_config(value) else value
        for value in (model.target_modules, model.get("exclude_modules"))
    )
    path, trust = str(model.path), bool(model.get("trust_remote_code", False))
    lora = LoraConfig(target_modules=targets or "all-linear", exclude_modules=exclude)
    try:
        return shape_of(AutoConfig.from_pretrained(path, trust_remote_code=trust), path, lora, trust, dense_only)
    except NotDense as error:
        raise BadConfig(f"{section}.path: {error}.") from error


def shape_of(
    config: Any, name: str, lora: LoraConfig | None = None, trust_remote_code: bool = False, dense_only: bool = True
) -> ModelShape:
    """The shape of the model that a transformers config describes.

    Args:
        lora: says which linear maps an adapter would have; None: all but the head.

    Raises:
        NotDense: it is a mixture of experts, or not a decoder-only transformer.
    """
    text = config.get_text_config()
    experts = getattr(text, "num_experts", None) or getattr(text, "num_local_experts", None)
    if experts and dense_only:
        raise NotDense(f"{name} is a mixture of {experts} experts; the memory plan supports only dense decoders")
    model = build_on_meta(config, trust_remote_code)
    prefix, layers = _decoder_layers(model, text.num_hidden_layers, name)
    head = model.get_output_embeddings()
    tied = bool(head.weight is model.get_input_embeddings().weight)
    heads = getattr(text, "num_attention_heads", None) or 0  # a state-space model has none
    head_width = getattr(text, "head_dim", None) or (text.hidden_size // heads if heads else 0)
    width = getattr(text, "intermediate_size", None) or 2 * text.hidden_size
    if used := getattr(text, "num_experts_per_tok", None):
        width = (getattr(text, "moe_intermediate_size", None) or width) * used
    features: Counter[bool] = Counter()  # whether in a decoder layer -> inputs + outputs
    for path, module in model.named_modules():
        if isinstance(module, nn.Linear) and module is not head and adapts(lora, path):
            features[path.startswith(f"{prefix}.")] += module.in_features + module.out_features
    weights = list(model.parameters())  # a tied weight is listed once
    own_units = set(model._no_split_modules or [])  # the classes that verl wraps as FSDP2 units
    in_units = {id(p) for m in model.modules() if type(m).__name__ in own_units for p in m.parameters()}
    if not tied:
        in_units |= {id(m.weight) for m in model.modules() if isinstance(m, nn.Embedding)} | {id(head.weight)}
    return ModelShape(
        name=name,
        hidden=text.hidden_size,
        intermediate=width,
        query=heads * head_width,
        key_value=(getattr(text, "num_key_value_heads", None) or heads) * head_width,
        vocab=text.vocab_size,
        layers=text.num_hidden_layers,
        tied=tied,
        qk_norm=any(child.endswith("q_norm") for child, _ in layers[0].named_modules()),
        tensors=Counter(weight.numel() for weight in weights),
        layer_weights=sum(weight.numel() for weight in layers[0].parameters()),
        root_weights=sum(weight.numel() for weight in weights if id(weight) not in in_units),
        layer_features=features[True] // text.num_hidden_layers,
        other_features=features[False],
    )


def adapts(lora: LoraConfig | None, name: str) -> bool:
    """True if LoRA adapts the linear map of this name: peft's own reading of target_modules and exclude_modules."""
    from peft import LoraConfig
    from peft.tuners.tuners_utils import check_target_module_exists

    if lora is None or lora.target_modules in (None, "all-linear"):
        lora = LoraConfig(target_modules=".*", exclude_modules=lora and lora.exclude_modules)
    return bool(check_target_module_exists(lora, name))


def build_on_meta(config: Any, trust_remote_code: bool = False) -> nn.Module:
    """The model that verl trains for this config, on the meta device."""
    from transformers import AutoModelForCausalLM, AutoModelForImageTextToText

    vision = type(config) in AutoModelForImageTextToText._model_mapping
    auto = AutoModelForImageTextToText if vision else AutoModelForCausalLM
    with torch.device("meta"):
        model: nn.Module = auto.from_config(config, trust_remote_code=trust_remote_code)
    return model


def _decoder_layers(model: nn.Module, count: int, name: str) -> tuple[str, nn.ModuleList]:
    """The name of the list of decoder layers in the model, and the list."""
    lists = [(path, each) for path, each in model.named_modules() if isinstance(each, nn.ModuleList)]
    found = [(path, each) for path, each in lists if len(each) == count and not ("visual" in path or "vision" in path)]
    if not found:
        raise NotDense(f"{name}: {type(model).__name__} has no list of {count} decoder layers")
    return max(found, key=lambda candidate: sum(weight.numel() for weight in candidate[1].parameters()))
