"""Configs of tiny Qwen3 and Qwen3-VL models."""

from typing import Any

from transformers import Qwen3Config, Qwen3VLConfig


def text_sizes(vocabulary: int, **changed: Any) -> dict[str, Any]:
    """Two layers of two or more heads in groups."""
    usual = dict(hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=4)
    return usual | dict(num_key_value_heads=2, head_dim=8, vocab_size=vocabulary) | changed


def qwen3(vocabulary: int, **changed: Any) -> Qwen3Config:
    return Qwen3Config(**text_sizes(vocabulary, **changed))


def qwen3_vl(text: dict[str, Any], *, tied: bool = False, **changed: Any) -> Qwen3VLConfig:
    """With a vision tower of one layer; the last four ids of the vocabulary are those of images and videos."""
    vision = dict(depth=1, hidden_size=8, intermediate_size=16, num_heads=2, out_hidden_size=text["hidden_size"])
    vision |= dict(deepstack_visual_indexes=[0], patch_size=2, num_position_embeddings=16)
    sections = [text["head_dim"] // 4, text["head_dim"] // 8, text["head_dim"] // 8]
    rope = dict(rope_type="default", rope_theta=1e4, mrope_section=sections, mrope_interleaved=True)
    names = ("image_token_id", "video_token_id", "vision_start_token_id", "vision_end_token_id")
    ids = dict(zip(names, range(text["vocab_size"] - 4, text["vocab_size"]), strict=True))
    text = text | {"rope_parameters": rope, "tie_word_embeddings": tied}
    return Qwen3VLConfig(text_config=text, vision_config=vision, tie_word_embeddings=tied, **(ids | changed))
