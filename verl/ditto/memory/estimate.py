"""Estimate the memory of a training process: weights, gradients, optimizer, activations, logits.

One arithmetic serves GPUs and CPUs, RL and SFT. It adds up what is there at once in a decoder layer, and in the head;
`tests/ditto/memory` holds it against torch's FSDP2 memory tracker. It needs no verl: benchmarks use it without.

The coefficients are those of transformers' decoder layers under FSDP2, with RMSNorm in float32, gradient checkpointing
per layer, AdamW, flash attention, and our output head, which computes logits in chunks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import nn

GIB = 1024**3
# Logits per chunk (as in ditto.model.chunked_head), and bytes per logit: of a chunk (bfloat16 logits, float32
# log-softmax, its exponentials), and without chunks.
CHUNK_LOGITS, CHUNK_LOGIT, FULL_LOGIT = 2**27, 10, 6
# Bytes per weight of a trained head: the sum of the chunks' gradients in float32, and the last chunk's in bfloat16.
HEAD_GRADIENT = 6
# What no tracker sees, assumed from logs: CUDA context, NCCL and workspaces, and the share of activations and logits
# that is lost to fragments, because they are freed all the time.
CONTEXT, FRAGMENTS = 1.5 * GIB, 0.04


class Memory(NamedTuple):
    """Bytes on one device, by purpose."""

    weights: int = 0
    gradients: int = 0
    optimizer: int = 0
    activations: int = 0
    logits: int = 0
    vllm: int = 0

    @property
    def reserve(self) -> int:
        """Bytes on a GPU that belong to no purpose."""
        return int(CONTEXT + FRAGMENTS * (self.activations + self.logits))

    @property
    def total(self) -> int:
        """All bytes, with the reserve."""
        return sum(self) + self.reserve


class Model(NamedTuple):
    """A decoder, with or without a vision tower, whose weights count as those of the decoder layers."""

    name: str
    weights: int  # without the adapter
    adapter: int  # weights of a LoRA adapter on all linear maps; 0: every weight of the model is trained
    largest_tensor: int  # number of weights
    layers: int
    hidden: int
    intermediate: int  # of the MLP, or of all experts together that a token uses
    query: int  # attention heads x head width
    key_value: int  # key-value heads x head width
    vocab: int
    tied: bool  # head and embedding share their weight
    qk_norm: bool  # queries and keys are normalised, in float32

    @property
    def embedding(self) -> int:
        """Number of weights of the embedding; an untied head has as many."""
        return self.vocab * self.hidden

    @property
    def layer(self) -> int:
        """Number of weights of a decoder layer."""
        return (self.weights - self.embedding * (1 if self.tied else 2)) // self.layers

    @property
    def trained(self) -> int:
        """Number of weights that have a gradient."""
        return self.adapter or self.weights

    def __str__(self) -> str:
        trained = f"{self.adapter / 1e9:.2f} B of an adapter (LoRA) trained" if self.adapter else "all trained"
        return f"{self.name}: {self.weights / 1e9:.2f} B weights, {trained},"


def read_model(config: Any, name: str, lora_rank: int = 0, trust_remote_code: bool = False) -> Model:
    """The sizes of the model that a transformers config describes, counted on the meta device."""
    text, model = config.get_text_config(), build_on_meta(config, trust_remote_code)
    tensors = [weight.numel() for weight in model.parameters()]  # a tied weight is listed once
    head = model.get_output_embeddings()
    maps = [module for module in model.modules() if isinstance(module, nn.Linear) and module is not head]
    heads = getattr(text, "num_attention_heads", None) or 0  # a state-space model has none
    head_width = getattr(text, "head_dim", None) or (text.hidden_size // heads if heads else 0)
    width = getattr(text, "intermediate_size", None) or 2 * text.hidden_size
    if experts := getattr(text, "num_experts_per_tok", None):
        width = (getattr(text, "moe_intermediate_size", None) or width) * experts
    return Model(
        name=name,
        weights=sum(tensors),
        adapter=lora_rank * sum(each.in_features + each.out_features for each in maps),
        largest_tensor=max(tensors),
        layers=text.num_hidden_layers,
        hidden=text.hidden_size,
        intermediate=width,
        query=heads * head_width,
        key_value=(getattr(text, "num_key_value_heads", None) or heads) * head_width,
        vocab=text.vocab_size,
        tied=bool(head.weight is model.get_input_embeddings().weight),
        qk_norm=any(path.endswith("q_norm") for path, _ in model.named_modules()),
    )


def build_on_meta(config: Any, trust_remote_code: bool = False) -> nn.Module:
    """The model that verl trains for this config, on the meta device, where tensors have a shape but no storage."""
    from transformers import AutoModelForCausalLM, AutoModelForImageTextToText

    vision = type(config) in AutoModelForImageTextToText._model_mapping
    auto = AutoModelForImageTextToText if vision else AutoModelForCausalLM
    with torch.device("meta"):
        model: nn.Module = auto.from_config(config, trust_remote_code=trust_remote_code)
    return model


@dataclass(frozen=True)
class Training:
    """A model and the way it is trained, in one process. Sizes of numbers are in bytes."""

    model: Model
    devices: int = 1  # number of devices that the weights are sharded over
    master: int = 4  # a trained weight, and its gradient; AdamW has two more numbers like it
    compute: int = 2  # a gathered weight, an activation, and a weight that LoRA does not train
    checkpointing: bool | None = True  # None: a CPU chooses
    reshard: bool = True  # a layer's gathered weights are freed after its forward pass
    offloaded: bool = False  # FSDP2's offload policy: shards, gradients and optimizer are on the host
    full_logits: bool = False  # all logits of a micro-batch exist at once, not just one chunk
    teacher_copies: int = 0  # of the trained weights (`ditto/model/teacher_weights.py`)

    @property
    def shard(self) -> int:
        """Bytes of one device's part of the weights."""
        stored = self.compute if self.model.adapter else self.master
        return (self.model.weights * stored + self.model.adapter * self.master) // self.devices

    @property
    def part(self) -> int:
        """Bytes of one device's part of what each trained weight has once: a gradient, a copy."""
        return self.model.trained * self.master // self.devices

    def update(self, tokens: int) -> Memory:
        """The peak of an optimizer update with micro-batches of so many tokens."""
        return max(self.moments(tokens), key=lambda memory: memory.total)

    def moments(self, tokens: int) -> list[Memory]:
        """The moments of an update that can be its peak: in a decoder layer, in the head, AdamW's step."""
        model, c, full, part = self.model, self.compute, not self.model.adapter, 0 if self.offloaded else self.part
        # Gradients on their way to the other devices, in float32: of a decoder layer, or of the head.
        in_layer = (model.layer if full else model.adapter // model.layers) * (c + 4)
        in_head = full * model.embedding * (c if self.full_logits else HEAD_GRADIENT)
        for_backward, in_backward = self.layer_activations()
        if self.checkpointing:  # a layer keeps its input, and the backward pass computes one layer again at a time
            kept, working = model.layers * c * model.hidden, for_backward + in_backward
        else:
            kept, working = model.layers * for_backward, in_backward
        layer, head = self._weights(), self._weights(in_head=True)
        return [
            Memory(layer, part + in_layer, 2 * part, tokens * (kept + working)),
            Memory(head, part + in_head, 2 * part, tokens * (kept + 5 * c * model.hidden), self._logits(tokens)),
            # The foreach implementation takes the square root of all second moments at once, after the passes.
            Memory(self._weights(gathered=False), 2 * part, 2 * part),
        ]

    def forward(self, tokens: int) -> Memory:
        """The peak of a pass without gradients, which computes log-probs; the optimizer stays on the device."""
        layer = tokens * 4 * self.compute * (self.model.hidden + self.model.intermediate)
        head, state = tokens * 8 * self.model.hidden, 0 if self.offloaded else 2 * self.part
        return max(
            Memory(self._weights(), 0, state, layer),
            Memory(self._weights(in_head=True), 0, state, head, self._logits(tokens)),
            key=lambda memory: memory.total,
        )

    def layer_activations(self) -> tuple[int, int]:
        """Bytes per token that a decoder layer keeps for its backward pass, and that this pass needs in addition.

        Kept: the float32 inputs and the outputs of both norms, queries and keys before and after norm and rotation,
        values, the attention's output, gate, up, their activation and product. The input of a frozen weight is not.
        """
        c, model, full = self.compute, self.model, not self.model.adapter
        projections = (5 if full else 4) if model.qk_norm else 2
        kept = (8 if full else 6) * c * model.hidden + 4 * c * model.intermediate
        # The larger of: gradients of gate and up; float32 gradients of a norm, when the MLP's tensors are freed.
        backward = max(2 * c * model.intermediate, 9 * c * model.hidden - 4 * c * model.intermediate)
        return kept + projections * c * (model.query + model.key_value), backward + (not full) * c * model.hidden

    def _weights(self, gathered: bool = True, in_head: bool = False) -> int:
        """Bytes of this device's shards, a moving teacher's, and the gathered weights of a layer or of the head.

        A tied embedding is gathered for a whole pass. In a layer also the next one, or the embedding; in the head the
        buffer in which it arrived. Full logits are turned into log-probs where nothing is gathered.
        """
        own = 0 if self.offloaded else self.shard + self.teacher_copies * self.part
        if not gathered or (in_head and self.full_logits):
            return own
        layer, embedding = self.model.layer + self.model.adapter // self.model.layers, self.model.embedding
        apart = 0 if self.model.tied else embedding
        units = 2 * apart if in_head else layer + max(layer, apart)
        if not self.reshard:
            units = self.model.layers * layer + 2 * apart
        return own + (units + self.model.tied * embedding) * self.compute

    def _logits(self, tokens: int) -> int:
        """Bytes of all logits of a micro-batch, or of one chunk of them."""
        if self.full_logits:
            return tokens * self.model.vocab * FULL_LOGIT
        return min(tokens * self.model.vocab, CHUNK_LOGITS) * CHUNK_LOGIT
