"""What the head costs, which turns hidden states into log-probabilities. Adapt this file to the head in use."""

from __future__ import annotations

# Bytes for each logit at the worst moment, all copies together (bfloat16 compute).
# Full: bfloat16 logits (2), float32 log-softmax kept for the backward pass (4), bfloat16 gradient (2).
FULL = 8
# A chunk that is computed again in the backward pass: float32 logits, softmax and gradients, bfloat16 copies. Forward
# alone: bfloat16 and float32 logits.
CHUNK_BACKWARD, CHUNK_FORWARD = 16, 6


def head_bytes(tokens: int, vocab: int, chunk: int | None, backward: bool) -> int:
    """Bytes that logits take.

    Args:
        chunk: tokens whose logits exist at one time; None: all.
        backward: gradients are computed as well.
    """
    if chunk is None:
        return tokens * vocab * FULL
    return min(chunk, tokens) * vocab * (CHUNK_BACKWARD if backward else CHUNK_FORWARD)
