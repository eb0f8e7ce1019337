"""Check facts of a model that would end a run late: quantization, generation config, vocabulary."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ditto.model.weights_check import BadModel
from soul.errors import one_line
from soul.mistakes import Mistakes

GENERATION = "generation_config.json"


def check_model_folder(path: str, trust: bool, setting: str) -> None:
    """Check config.json and generation_config.json of a model.

    Args:
        trust: whether to run code that comes with the model.
        setting: the setting that holds the path, for messages.

    Raises:
        BadModel: its weights are quantized, or its generation_config.json cannot be read.
    """
    from transformers import AutoConfig, GenerationConfig

    found = Mistakes()
    with found.of():
        config = AutoConfig.from_pretrained(path, trust_remote_code=trust)
        quantized = getattr(config, "quantization_config", None)
        if quantized is not None:
            method = quantized.get("quant_method") if isinstance(quantized, dict) else quantized.quant_method
            raise BadModel(
                f"{setting}={path}: its weights are quantized ({method}), and quantized weights cannot be trained. "
                "Use the checkpoint from which it was made."
            )
    if (Path(path) / GENERATION).is_file():
        with found.of():
            try:
                GenerationConfig.from_pretrained(path)
            except Exception as error:  # noqa: BLE001 - a damaged file makes transformers raise anything
                raise BadModel(
                    f"{setting}={path}: {GENERATION} cannot be read ({one_line(error, 200)}). Correct it, or remove it."
                ) from error
    found.report()


def check_vocabulary(path: str, trust: bool, setting: str, tokenizer: Any) -> None:
    """Check that the embedding has a row for each token.

    Raises:
        BadModel: a token's number is beyond the embedding.
    """
    from transformers import AutoConfig

    rows = AutoConfig.from_pretrained(path, trust_remote_code=trust).get_text_config().vocab_size
    token, number = max(tokenizer.get_vocab().items(), key=lambda item: item[1])
    if number >= rows:
        raise BadModel(
            f"{setting}={path}: the tokenizer numbers its tokens up to {number:,} ({token!r}), but the embedding has "
            f"{rows:,} rows (vocab_size in config.json). Use the tokenizer that belongs to the weights, or enlarge the "
            "embedding (resize_token_embeddings of transformers) and save the model."
        )
