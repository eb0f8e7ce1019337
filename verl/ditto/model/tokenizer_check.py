"""The tokenizer of a model path, checked: there is one, and its chat template can be used."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ditto.model.weights_check import BadModel

_PROBE = "A small test."
_ASKED = [{"role": "user", "content": _PROBE}]


def load_tokenizer(path: str, trust: bool, setting: str, chat_template: str | None = None) -> Any:
    """The tokenizer of a model path or hub id.

    Args:
        trust: run code that comes with the model.
        setting: the name of the setting that holds the path, for messages.
        chat_template: takes the place of the tokenizer's own.

    Raises:
        BadModel: there is no such model, or it has no tokenizer or no chat template that works.
    """
    try:
        tokenizer = _load(path, trust)
        if chat_template is not None:
            tokenizer.chat_template = chat_template
        _try(tokenizer)
    except BadModel as error:
        raise BadModel(f"{setting}={path}: {error}") from error
    return tokenizer


def _load(path: str, trust: bool) -> Any:
    from transformers import AutoConfig, AutoTokenizer

    _refuse_adapter(Path(path))
    try:
        AutoConfig.from_pretrained(path, trust_remote_code=trust)
        return AutoTokenizer.from_pretrained(path, trust_remote_code=trust)
    except Exception as error:  # noqa: BLE001 - a damaged folder makes transformers raise anything
        place = "neither an existing folder nor a model that the hub knows"
        if Path(path).exists():
            place = "an existing folder" if Path(path).is_dir() else "a file and not a folder"
        raise BadModel(
            f"{place} ({' '.join(str(error).split())[:300]}). Give a folder with config.json, tokenizer and weights, "
            "or a full hub id such as Qwen/Qwen3-8B (ACTOR_MODEL_PATH)."
        ) from error


def _refuse_adapter(folder: Path) -> None:
    """transformers would take the adapter's base model in its place, without a word."""
    described = folder / "adapter_config.json"
    if not described.is_file() or (folder / "config.json").is_file():
        return
    try:
        base = json.loads(described.read_text())["base_model_name_or_path"]
    except (ValueError, KeyError, TypeError):
        base = "its base model"
    raise BadModel(
        f"this is a LoRA adapter and not a model. Name its base model ({base}) here, the adapter with "
        "lora_adapter_path beside it, and the adapter's rank with lora_rank."
    )


def _try(tokenizer: Any) -> None:
    """Tokenise and render one message."""
    if not tokenizer.chat_template:
        raise BadModel("the tokenizer has no chat template. Use an instruct model.")
    try:
        known = bool(tokenizer(_PROBE, add_special_tokens=False).input_ids)
    except Exception:  # noqa: BLE001 - a tokenizer without its vocabulary raises anything
        known = False
    if not known:
        raise BadModel(
            "the tokenizer knows no words: tokenizer.json (or vocab.json and merges.txt) is missing or damaged. "
            "Download or copy the model again."
        )
    try:
        tokenizer.apply_chat_template(_ASKED, add_generation_prompt=True, tokenize=False)
    except Exception as error:  # noqa: BLE001 - a template is a program of its own
        raise BadModel(
            f"the chat template fails on a single message of a user ({type(error).__name__}: "
            f"{' '.join(str(error).split())[:200]}). Use the template of an instruct model: chat_template.jinja in the "
            "folder, or custom_chat_template beside this setting."
        ) from error
