"""transformers' language models with the chunked head, where verl builds its models.

verl's engine has a contract for heads that make no logits (`model.use_fused_kernels`): it calls the model with
`temperature` and `shift_labels` and reads `log_probs` and `entropy`. verl's own heads break under FSDP2 when the head
is untied (they read a sharded weight). Ours are subclasses that transformers' auto classes build instead of the
originals, a door of transformers; `fused_kernel_options.impl_backend=chunked` is a name that verl does not know, so it
leaves their forward alone. Called without `temperature` they are what they were.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import torch
import transformers
from torch import Tensor
from transformers.modeling_outputs import CausalLMOutputWithPast

from ditto.model.chunked_head import token_log_probs

# model_type -> (config class, model class, auto class). Logits of each are `self.lm_head` of what `self.model` returns,
# with nothing behind it: no soft cap, no scale.
FAMILIES = {
    "llama": ("LlamaConfig", "LlamaForCausalLM", "AutoModelForCausalLM"),
    "qwen2": ("Qwen2Config", "Qwen2ForCausalLM", "AutoModelForCausalLM"),
    "qwen3": ("Qwen3Config", "Qwen3ForCausalLM", "AutoModelForCausalLM"),
    "qwen3_vl": ("Qwen3VLConfig", "Qwen3VLForConditionalGeneration", "AutoModelForImageTextToText"),
}


@dataclass
class TokenLogProbs(CausalLMOutputWithPast):
    """What verl's engine reads of a model without logits."""

    log_probs: Tensor | None = None  # (batch, tokens), of the token that follows
    entropy: Tensor | None = None


def with_chunked_head(base: type[Any]) -> type[Any]:
    """A subclass that answers `temperature` with log-probs; its name stays, for saved configs name it."""

    @functools.wraps(base.forward)  # generate() and peft read the signature
    def forward(
        self: Any,
        input_ids: Tensor | None = None,
        *args: Any,
        temperature: float | None = None,
        shift_labels: Tensor | None = None,
        **kwargs: Any,
    ) -> Any:
        if temperature is None:
            return base.forward(self, input_ids, *args, **kwargs)
        for name in ("labels", "return_dict"):  # verl passes the one, peft the other
            kwargs.pop(name, None)
        if shift_labels is None:  # padded rows; what stands behind a row's last token is not asked for
            assert input_ids is not None
            shift_labels = torch.roll(input_ids, -1, -1)
        hidden = self.model(input_ids, *args, **kwargs)[0]
        log_probs, entropy = token_log_probs(self.lm_head, hidden, shift_labels, temperature)
        return TokenLogProbs(log_probs=log_probs, entropy=entropy)

    return type(base.__name__, (base,), {"forward": forward, "__module__": base.__module__})


def register() -> None:
    """Let transformers' auto classes build the subclasses, in this process."""
    for config_name, model_name, auto_name in FAMILIES.values():
        config, auto = getattr(transformers, config_name), getattr(transformers, auto_name)
        auto.register(config, with_chunked_head(getattr(transformers, model_name)), exist_ok=True)
