"""What the memory plan needs to know of a model: how many weights each part has, and how wide its activations are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

GIB = 1024**3


@dataclass(frozen=True)
class ModelShape:
    """A dense decoder, with or without a vision tower. `read_model.py` builds it from a transformers config.

    FSDP2 gathers the weights of one unit at a time. Units are the decoder layers, the blocks of a vision tower and, if
    the head is not tied to the embedding, the embedding and the head. All other weights belong to the root, which stays
    gathered during a whole forward or backward pass.
    """

    name: str
    hidden: int
    intermediate: int
    query: int  # attention heads x head width
    key_value: int  # key-value heads x head width
    vocab: int
    layers: int
    tied: bool  # head and embedding share their weight
    qk_norm: bool  # queries and keys are normalised, in float32
    tensors: Mapping[int, int]  # number of elements -> number of tensors of that size; the whole model
    layer_weights: int  # per decoder layer
    root_weights: int  # final norm, a vision tower's weights outside its blocks, and a tied embedding
    layer_features: int  # inputs + outputs, summed over one decoder layer's linear maps that LoRA adapts
    other_features: int  # the same for all adapted linear maps outside the decoder layers
    vision_hidden: int = 0  # 0: no vision tower
    vision_weights: int = 0

    @property
    def embedding(self) -> int:
        """Number of weights of the embedding; the head has as many."""
        return self.vocab * self.hidden

    @property
    def weights(self) -> int:
        """Number of all weights, without adapters. A tied embedding counts once."""
        return sum(elements * count for elements, count in self.tensors.items())

    def layer_adapter(self, rank: int) -> int:
        """Number of weights that LoRA adds to one decoder layer: A has rank x inputs, B has outputs x rank."""
        return rank * self.layer_features

    def adapter(self, rank: int) -> int:
        """Number of weights that LoRA adds to the model."""
        return rank * (self.layers * self.layer_features + self.other_features)
