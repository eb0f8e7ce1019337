"""Qwen3 models of several sizes, as transformers configs."""

from pathlib import Path
from typing import Any

from transformers import Qwen3Config, Qwen3VLConfig

VOCAB, HEAD = 151936, 128
TEXT: dict[str, dict[str, Any]] = {
    "0.6B": {"hidden_size": 1024, "num_hidden_layers": 28, "num_attention_heads": 16, "intermediate_size": 3072},
    "4B": {"hidden_size": 2560, "num_hidden_layers": 36, "num_attention_heads": 32, "intermediate_size": 9728},
    "8B": {"hidden_size": 4096, "num_hidden_layers": 36, "num_attention_heads": 32, "intermediate_size": 12288},
    "32B": {"hidden_size": 5120, "num_hidden_layers": 64, "num_attention_heads": 64, "intermediate_size": 25600},
}
VISION = {
    "depth": 27,
    "hidden_size": 1152,
    "intermediate_size": 4304,
    "num_heads": 16,
    "out_hidden_size": 4096,
    "deepstack_visual_indexes": [8, 16, 24],
}


def text(size: str, **changed: Any) -> Qwen3Config:
    """Qwen3 of a size; the small ones have a tied head."""
    tied = size in ("0.6B", "4B")
    common = {"num_key_value_heads": 8, "head_dim": HEAD, "vocab_size": VOCAB, "tie_word_embeddings": tied}
    return Qwen3Config(architectures=["Qwen3ForCausalLM"], **{**common, **TEXT[size], **changed})


def vision_language() -> Qwen3VLConfig:
    """Qwen3-VL-8B."""
    language = {**TEXT["8B"], "num_key_value_heads": 8, "head_dim": HEAD, "vocab_size": VOCAB}
    return Qwen3VLConfig(text_config=language, vision_config=VISION, tie_word_embeddings=False)


def saved(config: Any, folder: Path) -> Path:
    """A folder with the config and nothing else: what a plan reads."""
    config.save_pretrained(folder)
    return folder
