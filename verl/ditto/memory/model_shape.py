"""What the plan must know of a model: how many weights lie where, and how wide its activations are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

GIB = 1024**3


@dataclass(frozen=True)
class ModelShape:
    """A dense decoder, with or without a vision tower. `read_model.py` makes one from a transformers config.

    FSDP2 gathers the weights of one unit at a time. Units are the decoder layers, the blocks of a vision tower, and,
    where the head is not tied to it, the embedding and the head. All other weights belong to the root, which is
    gathered as long as a forward or a backward pass lasts.
    """

    name: str
    hidden: int
    intermediate: int
    query: int  # attention heads x head width
    key_value: int  # key-value heads x head width
    vocab: int
    layers: int
    tied: bool  # the head is the embedding
    qk_norm: bool  # queries and keys are normalised, in float32
    tensors: Mapping[int, int]  # elements of a weight -> how many weights have so many; all of the model
    layer_weights: int  # of one decoder layer
    root_weights: int  # final norm, what a vision tower has outside its blocks; the embedding where it is tied
    layer_features: int  # inputs + outputs, summed over the linear maps of one decoder layer that LoRA adapts
    other_features: int  # the same for all linear maps outside the decoder layers
    vision_hidden: int = 0  # 0: no vision tower
    vision_weights: int = 0

    @property
    def embedding(self) -> int:
        """Weights of the embedding, and of the head."""
        return self.vocab * self.hidden

    @property
    def weights(self) -> int:
        """All weights, without adapters. A tied embedding counts once."""
        return sum(elements * count for elements, count in self.tensors.items())

    def layer_adapter(self, rank: int) -> int:
        """Weights that LoRA adds to one decoder layer: A has rank x inputs, B outputs x rank."""
        return rank * self.layer_features

    def adapter(self, rank: int) -> int:
        """Weights that LoRA adds to the model."""
        return rank * (self.layers * self.layer_features + self.other_features)
