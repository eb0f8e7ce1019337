"""Memory of the output head, which turns hidden states into log-probs: in chunks (ours), or all logits at once."""

from __future__ import annotations

# Logits per chunk, and the number that its tokens are a multiple of. Same as in ditto.model.chunked_head, which needs
# torch.
CHUNK_LOGITS, CHUNK_TOKENS = 2**27, 256
# Bytes per logit at the peak. Chunked: bfloat16 logits, their float32 log-softmax and its exponentials.
CHUNK = 10
# Full: bfloat16 logits and the float32 log-softmax; the latter is kept, and turns into two bfloat16 gradients.
FULL, FULL_BACKWARD = 6, 4
# Bytes per weight of a trained head: the sum of the chunks' gradients in float32, and the last chunk's in bfloat16.
GRADIENT_SUM = 6


def head_bytes(tokens: int, vocab: int, full: bool, backward: bool) -> int:
    """Bytes of the logits: of all tokens (`full`), or of one chunk.

    Args:
        tokens: tokens of the micro-batch.
        backward: the peak of the backward pass instead of the forward pass.
    """
    if full:
        return tokens * vocab * (FULL_BACKWARD if backward else FULL)
    chunk = CHUNK_LOGITS // vocab
    return min(tokens, chunk if chunk < CHUNK_TOKENS else chunk // CHUNK_TOKENS * CHUNK_TOKENS) * vocab * CHUNK
