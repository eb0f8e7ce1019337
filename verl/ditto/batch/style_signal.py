"""The share of the distillation's signal that falls on style tokens: the sign of privilege-induced style drift.

A policy that sees the feedback also writes in another manner, more direct and shorter, and the gap between the two
contexts is large on words that carry the manner. Distilling it then trains style (RLCSD, arXiv 2606.11709). The signal
of a token is what it adds to the distillation, as an absolute value:

    refined answers in the base context    |weight x advantage| x |log pi(y'_t | x, f) - log pi(y'_t | x)|
    a draft under SDPO's teacher           weight x |log pi - log pi_T|, or weight x divergence

`soul.metrics.style` says which words are style. A token is a style token if it has a visible character and none of a
content word, so words of several tokens are judged as a whole.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from ditto.batch.jagged import per_token, with_values
from ditto.batch.queue import KVBatchMeta, fetch
from ditto.batch.step_batch import StepBatch
from soul.metrics.style import content_mask

_SPACE_MARKS = ("Ġ", "▁")  # how tokenizers write a space at a token's start


class StyleSignal:
    """Measures the signal on style tokens of each step.

    Args:
        tokenizer: a transformers tokenizer.
    """

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._special = set(tokenizer.all_special_ids)
        self._texts: dict[int, str] = {}

    def is_style(self, ids: list[int]) -> list[bool]:
        """Say of each token of a text if it is a style token."""
        texts = [self._text(token) for token in ids]
        content = content_mask("".join(texts))
        style, start = [], 0
        for text in texts:
            end = start + len(text)
            style.append(not text.isspace() and text != "" and not any(content[start:end]))
            start = end
        return style

    def _text(self, token: int) -> str:
        """A token's text with its leading space; a special token is a line break, which separates words."""
        if token not in self._texts:
            if token in self._special:
                self._texts[token] = "\n"
            else:
                space = str(self._tokenizer.convert_ids_to_tokens(token)).startswith(_SPACE_MARKS)
                text = self._tokenizer.decode([token])
                self._texts[token] = f" {text.removeprefix(' ')}" if space else text
        return self._texts[token]

    def mark(self, batch: KVBatchMeta, step: StepBatch) -> None:
        """Find the style tokens of the rows that carry a signal; `step.style` holds them."""
        assert step.columns is not None
        rows, mask = signal_rows(step), step.columns.mask
        if not any(rows):
            return
        chosen = [key for key, row in zip(batch.keys, rows, strict=True) if row]
        data = fetch(batch.select_keys(chosen), "responses")
        column, starts = torch.zeros(mask.values().shape), mask.offsets().tolist()
        responses = iter(data["responses"].unbind())
        for place, row in enumerate(rows):
            if row:
                style = self.is_style(next(responses).tolist())
                column[starts[place] : starts[place + 1]] = torch.tensor(style, dtype=torch.float32)
        step.style = with_values(column * mask.values(), mask)


def signal_rows(step: StepBatch) -> list[bool]:
    """Say of each row if it carries a signal: its teacher reads the feedback, or it is a refined answer that teaches
    something. What an expert teaches comes from no privilege."""
    return [
        (record.loss.distill_weight != 0 and record.loss.teacher < 0)
        or (record.kind == "refined_base" and record.loss.learns)
        for record in step.records
    ]


def style_metrics(step: StepBatch) -> dict[str, float]:
    """The share of style tokens in the sequences that carry a signal, and in the signal of refined answers."""
    if step.style is None:
        return {}
    assert step.columns is not None
    columns, style = step.columns, step.style.values()
    sampled = columns.mask.values() * per_token(signal_rows(step), columns.mask)
    tokens = (style.sum() / sampled.sum()).item()
    weights = [
        abs(record.loss.weight * record.loss.advantage) if record.kind == "refined_base" else 0.0
        for record in step.records
    ]
    gap = (columns.rollout_log_probs.values() - columns.old_log_probs.values()).abs()
    signal = per_token(weights, columns.mask) * gap * sampled
    return {"ditto/style_tokens": tokens} | _shares((signal * style).sum().item(), signal.sum().item(), tokens)


def of_distillation(metrics: Mapping[str, Any], part: str) -> dict[str, float]:
    """The step's metrics from the sums that the loss reports for the part that distils."""
    names = (f"actor/part/{part}/style_signal", f"actor/part/{part}/signal", "ditto/style_tokens")
    if any(name not in metrics for name in names):
        return {}
    return _shares(*(float(metrics[name]) for name in names))


def _shares(on_style: float, signal: float, tokens: float) -> dict[str, float]:
    """The share of the signal on style tokens, and how many times their share of the tokens it is."""
    if not signal:
        return {}
    share = on_style / signal
    return {"ditto/style_share": share} | ({"ditto/style_ratio": share / tokens} if tokens else {})
