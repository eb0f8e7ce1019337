"""verl patches transformers' classes when it builds a model; tests in the same process must find them as they were."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest


@contextmanager
def undone_afterwards() -> Iterator[None]:
    """What verl patches of Qwen3-VL and of flash attention inside the block is undone behind it."""
    from transformers.integrations import flash_attention
    from transformers.models.qwen3_vl import modeling_qwen3_vl as dense
    from transformers.models.qwen3_vl_moe import modeling_qwen3_vl_moe as sparse

    with pytest.MonkeyPatch.context() as undo:
        for module, prefix in ((dense, "Qwen3VL"), (sparse, "Qwen3VLMoe")):
            for name in ("Model", "TextModel", "ForConditionalGeneration"):
                changed = getattr(module, prefix + name)
                undo.setattr(changed, "forward", changed.forward)
            vision = getattr(module, prefix + "VisionModel")
            undo.setattr(vision, "fast_pos_embed_interpolate", vision.fast_pos_embed_interpolate)
        undo.setattr(flash_attention, "_flash_attention_forward", flash_attention._flash_attention_forward)
        yield
