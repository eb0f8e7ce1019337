"""What the head costs, which turns hidden states into log-probabilities: ours by chunks, or all logits at one time."""

from __future__ import annotations

# Logits of a chunk, and what its tokens are a multiple of (ditto.model.chunked_head, which needs torch).
CHUNK_LOGITS, CHUNK_TOKENS = 2**27, 256
# Bytes for each logit at the fullest moment. Chunks: bfloat16 logits, their float32 log-softmax and its exponentials.
CHUNK = 10
# Full: bfloat16 logits and the float32 log-softmax; the latter is kept and becomes two bfloat16 gradients.
FULL, FULL_BACKWARD = 6, 4
# Bytes for each weight of a trained head: the chunks' gradients, summed in float32, and the last chunk's in bfloat16.
GRADIENT_SUM = 6


def head_bytes(tokens: int, vocab: int, full: bool, backward: bool) -> int:
    """Bytes that logits take, all at one time or one chunk of them."""
    if full:
        return tokens * vocab * (FULL_BACKWARD if backward else FULL)
    chunk = CHUNK_LOGITS // vocab
    return min(tokens, chunk if chunk < CHUNK_TOKENS else chunk // CHUNK_TOKENS * CHUNK_TOKENS) * vocab * CHUNK
