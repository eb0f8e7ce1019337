"""Give transformers' language models the chunked head wherever verl builds them.

verl's engine has an interface for heads that make no logits (`model.use_fused_kernels`): it calls the model with
`temperature` and `shift_labels`, and reads `log_probs` and `entropy`; our engine adds `lessons`, `divergence`. verl's
own implementations fail under FSDP2 with an untied head, because they read a sharded weight. Ours are subclasses,
registered with transformers' auto classes in place of the originals. verl does not know
`fused_kernel_options.impl_backend=chunked`, so it does not replace their forward. Called without `temperature`, they
behave like the originals.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import transformers
from torch import Tensor
from transformers.modeling_outputs import CausalLMOutputWithPast

from ditto.model.chunked_head import token_log_probs
from ditto.model.divergence_head import Lesson, token_divergences

# model_type -> (config class, model class, auto class). To qualify, a model's logits must be exactly `self.lm_head` of
# the output of `self.model`, without soft cap or scale.
FAMILIES = {
    "llama": ("LlamaConfig", "LlamaForCausalLM", "AutoModelForCausalLM"),
    "qwen2": ("Qwen2Config", "Qwen2ForCausalLM", "AutoModelForCausalLM"),
    "qwen3": ("Qwen3Config", "Qwen3ForCausalLM", "AutoModelForCausalLM"),
    "qwen3_vl": ("Qwen3VLConfig", "Qwen3VLForConditionalGeneration", "AutoModelForImageTextToText"),
}


@dataclass
class TokenLogProbs(CausalLMOutputWithPast):
    """The output that verl's engine reads from a model without logits."""

    log_probs: Tensor | None = None  # (batch, tokens), of the next token
    entropy: Tensor | None = None  # (batch, tokens)
    divergence: Tensor | None = None  # (positions of all lessons,)


def with_chunked_head(base: type[Any]) -> type[Any]:
    """A subclass that returns log-probs if called with `temperature`. The name stays: saved configs contain it."""

    @functools.wraps(base.forward)  # generate() and peft inspect the signature
    def forward(
        self: Any,
        input_ids: Tensor | None = None,
        *args: Any,
        temperature: float | None = None,
        shift_labels: Tensor | None = None,
        logits_to_keep: Tensor | int = 0,
        hidden_only: bool = False,
        lessons: Sequence[Lesson] = (),
        **kwargs: Any,
    ) -> Any:
        if temperature is None:
            return base.forward(self, input_ids, *args, logits_to_keep=logits_to_keep, **kwargs)
        for name in ("labels", "return_dict"):  # verl passes the former, peft the latter
            kwargs.pop(name, None)
        if shift_labels is None:  # padded rows; the label of a row's last token is never used
            assert input_ids is not None
            shift_labels = torch.roll(input_ids, -1, -1)
        hidden = self.model(input_ids, *args, **kwargs)[0]
        if hidden_only:
            return TokenLogProbs(hidden_states=(hidden,))
        if isinstance(logits_to_keep, Tensor):  # places, as in transformers; shift_labels are those of these places
            hidden = hidden[:, logits_to_keep]
        log_probs, entropy = token_log_probs(self.lm_head, hidden, shift_labels, temperature)
        parts = [token_divergences(self.lm_head, hidden, lesson, temperature) for lesson in lessons]
        return TokenLogProbs(log_probs=log_probs, entropy=entropy, divergence=torch.cat(parts) if parts else None)

    return type(base.__name__, (base,), {"forward": forward, "__module__": base.__module__})


def register() -> None:
    """Make transformers' auto classes build the subclasses in this process."""
    for config_name, model_name, auto_name in FAMILIES.values():
        config, auto = getattr(transformers, config_name), getattr(transformers, auto_name)
        auto.register(config, with_chunked_head(getattr(transformers, model_name)), exist_ok=True)
