"""Give a language model the chunked head.

verl's engine has an interface for heads that make no logits (`model.use_fused_kernels`): it calls the model with
`temperature` and `shift_labels`, and reads `log_probs` and `entropy`; our engine adds `teacher_scores`, `divergence`.
verl's own implementations fail under FSDP2 with an untied head, because they read a sharded weight. Ours are subclasses
of the models' own classes; our engine gives them to the models that it builds. verl does not know
`fused_kernel_options.impl_backend=chunked`, so it does not replace their forward. Called without `temperature`, they
behave like the originals. `head_settings` checks that a model's logits are `lm_head` of the output of `model`.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers.modeling_outputs import CausalLMOutputWithPast

from ditto.model.chunked_head import token_log_probs
from ditto.model.divergence_head import TeacherScores, token_divergences


@dataclass
class TokenLogProbs(CausalLMOutputWithPast):
    """The output that verl's engine reads from a model without logits."""

    log_probs: Tensor | None = None  # (batch, tokens), of the next token
    entropy: Tensor | None = None  # (batch, tokens)
    divergence: Tensor | None = None  # (positions of all teacher_scores,)


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
        teacher_scores: Sequence[TeacherScores] = (),
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
        parts = [token_divergences(self.lm_head, hidden, scores, temperature) for scores in teacher_scores]
        return TokenLogProbs(log_probs=log_probs, entropy=entropy, divergence=torch.cat(parts) if parts else None)

    return type(base.__name__, (base,), {"forward": forward, "__module__": base.__module__})
