"""Load the tokenizer of a model path, and check that it and its chat template work."""

from __future__ import annotations

import json
import logging
import os
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit
from urllib.request import getproxies

from ditto.model.weights_check import BadModel
from soul.chat.model_chat import stop_ids
from soul.chat.template_check import BadTemplate, ChatFormat, fit_template
from soul.chat.template_file import read_template
from soul.errors import one_line

logger = logging.getLogger(__name__)
_PROBE = "A small test."
PATIENCE_S = 3.0  # with a hub that may be unreachable


class Chat(NamedTuple):
    """A tokenizer, with the template to train and serve with as its own, and how it reads our conversations."""

    tokenizer: Any
    format: ChatFormat
    changed: bool  # the template is not the one in the model's folder


def load_chat(
    path: str,
    trust: bool,
    setting: str,
    template: str | None = None,
    template_setting: str = "actor_rollout_ref.model.custom_chat_template",
    template_kwargs: Mapping[str, Any] | None = None,
) -> Chat:
    """The tokenizer of a model path or hub id, with its chat template completed (`soul.chat.template_check`).

    Args:
        trust: whether to run code that comes with the model.
        setting: the setting that holds the path, for messages.
        template: a file, or the name of one of our templates; None: the model's own.
        template_setting: the setting that holds it, for messages.
        template_kwargs: arguments of the template.

    Raises:
        BadModel: there is no such model, it has no working tokenizer or chat template, or `template` names none.
    """
    try:
        tokenizer = _load(path, trust)
        if template is not None:
            tokenizer.chat_template = read_template(template, template_setting, tokenizer.get_vocab())
        _try(tokenizer, template_setting)
        found = fit_template(tokenizer, stop_ids(path, trust, tokenizer), template_kwargs, template_setting)
    except (BadModel, BadTemplate) as error:
        raise BadModel(f"{setting}={path}: {error}") from error
    if found.template is not None:
        tokenizer.chat_template = found.template
    return Chat(tokenizer, found, template is not None or found.template is not None)


def load_tokenizer(path: str, trust: bool, setting: str) -> Any:
    """The tokenizer of `load_chat`, with the model's own template; raises as it does."""
    return load_chat(path, trust, setting).tokenizer


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


def check_processor(path: str, trust: bool, setting: str) -> None:
    """Refuse a vision-language model that vLLM cannot load, even for text alone.

    Args:
        trust, setting: as for `load_chat`.

    Raises:
        BadModel: its processor's files are missing.
    """
    from transformers import AutoConfig
    from transformers.utils import cached_file

    if not hasattr(AutoConfig.from_pretrained(path, trust_remote_code=trust), "vision_config"):
        return
    names = ("preprocessor_config.json", "processor_config.json")
    if not any(cached_file(path, name, _raise_exceptions_for_missing_entries=False) for name in names):
        raise BadModel(
            f"{setting}={path}: a vision-language model without its processor: {' and '.join(names)} are missing, and "
            "vLLM does not load it without one. Copy or download the model again."
        )


def use_cache_without_hub(path: str) -> None:
    """Make the hub's client look into its cache only, if this model comes from the hub and it cannot be reached.

    Otherwise its client would try for 48 s, for every file. This holds for this process and for all that it starts.
    """
    from huggingface_hub import constants

    address = urlsplit(constants.ENDPOINT)
    if Path(path).exists() or constants.HF_HUB_OFFLINE or address.scheme in getproxies():
        return
    host, port = address.hostname or "", address.port or (443 if address.scheme == "https" else 80)
    try:
        socket.create_connection((host, port), timeout=PATIENCE_S).close()
    except OSError as error:
        logger.warning("The hub cannot be reached (%s: %s); its cache is used alone", host, error)
        os.environ["HF_HUB_OFFLINE"] = "1"
        constants.HF_HUB_OFFLINE = True


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
    """Check that the tokenizer can encode text and has a chat template."""
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
