"""Load the tokenizer of a model path, and check that it and its chat template work."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ditto.model.hub import use_cache_without_hub
from ditto.model.weights_check import BadModel
from soul.errors import one_line

_PROBE = "A small test."
_MESSAGES = [{"role": "user", "content": _PROBE}]


def load_tokenizer(
    path: str,
    trust: bool,
    setting: str,
    chat_template: str | None = None,
    template_setting: str = "custom_chat_template",
) -> Any:
    """The tokenizer of a model path or hub id.

    Args:
        trust: whether to run code that comes with the model.
        setting: the setting that holds the path, for messages.
        chat_template: replaces the tokenizer's own.
        template_setting: the setting that holds it, for messages.

    Raises:
        BadModel: there is no such model, or it has no working tokenizer or chat template.
    """
    try:
        tokenizer = _load(path, trust)
        if chat_template is not None:
            tokenizer.chat_template = chat_template
        _try(tokenizer, template_setting)
    except BadModel as error:
        raise BadModel(f"{setting}={path}: {error}") from error
    return tokenizer


def _load(path: str, trust: bool) -> Any:
    from transformers import AutoConfig, AutoTokenizer

    _refuse_adapter(Path(path))
    use_cache_without_hub(path)
    try:
        AutoConfig.from_pretrained(path, trust_remote_code=trust)
        return AutoTokenizer.from_pretrained(path, trust_remote_code=trust)
    except Exception as error:  # noqa: BLE001 - a damaged folder makes transformers raise anything
        place = "neither an existing folder nor a model that the hub knows"
        if Path(path).exists():
            place = "an existing folder" if Path(path).is_dir() else "a file and not a folder"
        raise BadModel(
            f"{place} ({one_line(error, 300)}). Give a folder with config.json, tokenizer and weights, "
            "or a full hub id such as Qwen/Qwen3-8B (ACTOR_MODEL_PATH)."
        ) from error


def _refuse_adapter(folder: Path) -> None:
    """Refuse a LoRA adapter: transformers would silently load its base model instead."""
    config = folder / "adapter_config.json"
    if not config.is_file() or (folder / "config.json").is_file():
        return
    try:
        base = json.loads(config.read_text())["base_model_name_or_path"]
    except (ValueError, KeyError, TypeError):
        base = "its base model"
    raise BadModel(
        f"this is a LoRA adapter, not a model. Name its base model ({base}) here, the adapter in lora_adapter_path, "
        "and the adapter's rank in lora_rank."
    )


def _try(tokenizer: Any, template_setting: str) -> None:
    """Check that the tokenizer can encode text and render a message."""
    if not tokenizer.chat_template:
        raise BadModel(f"the tokenizer has no chat template. Use an instruct model, or set {template_setting}.")
    try:
        encodes = bool(tokenizer(_PROBE, add_special_tokens=False).input_ids)
    except Exception:  # noqa: BLE001 - a tokenizer without its vocabulary raises anything
        encodes = False
    if not encodes:
        raise BadModel(
            "the tokenizer has no vocabulary: tokenizer.json (or vocab.json and merges.txt) is missing or damaged. "
            "Download or copy the model again."
        )
    try:
        tokenizer.apply_chat_template(_MESSAGES, add_generation_prompt=True, tokenize=False)
    except Exception as error:  # noqa: BLE001 - a template is a program of its own
        raise BadModel(
            f"the chat template fails on a single user message ({type(error).__name__}: "
            f"{one_line(error, 200)}). Use the template of an instruct model: chat_template.jinja in the "
            f"folder, or {template_setting}."
        ) from error
