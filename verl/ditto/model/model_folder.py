"""Load the tokenizer of a model path, and check that the folder holds a model that can be trained.

Only the headers of the weights are read. Otherwise an incomplete download or another model's config.json would fail in
every worker after minutes, and a missing tensor would silently be initialized at random.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from soul.chat.model_chat import stop_ids
from soul.chat.template_check import BadTemplate, ChatFormat, fit_template
from soul.chat.template_file import read_template
from soul.errors import SoulError, one_line

_REMEDY = "Download or copy the model again (git lfs pull, if it is a clone)"


class BadModel(SoulError):
    """A model path does not hold a model that can be trained."""


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
        if not tokenizer.chat_template:
            raise BadModel(f"the tokenizer has no chat template. Use an instruct model, or set {template_setting}.")
        found = fit_template(tokenizer, stop_ids(path, trust, tokenizer), template_kwargs, template_setting)
    except (BadModel, BadTemplate) as error:
        raise BadModel(f"{setting}={path}: {error}") from error
    if found.template is not None:
        tokenizer.chat_template = found.template
    return Chat(tokenizer, found, template is not None or found.template is not None)


def _load(path: str, trust: bool) -> Any:
    from transformers import AutoConfig, AutoTokenizer

    adapter = Path(path) / "adapter_config.json"
    if adapter.is_file() and not (Path(path) / "config.json").is_file():  # transformers would load its base model
        base = json.loads(adapter.read_text()).get("base_model_name_or_path")
        raise BadModel(
            f"this is a LoRA adapter, not a model. Name its base model ({base}) here, the adapter in "
            "lora_adapter_path, and the adapter's rank in lora_rank."
        )
    try:
        config = AutoConfig.from_pretrained(path, trust_remote_code=trust)
        tokenizer = AutoTokenizer.from_pretrained(path, trust_remote_code=trust)
    except Exception as error:  # noqa: BLE001 - a damaged folder makes transformers raise anything
        local = Path(path).is_dir()
        known = "an existing folder" if local else "neither an existing folder nor a model that the hub knows"
        raise BadModel(
            f"{known} ({one_line(error, 300)}). Give a folder with config.json, tokenizer and weights, "
            "or a full hub id such as Qwen/Qwen3-8B (ACTOR_MODEL_PATH)."
        ) from error
    quantized = getattr(config, "quantization_config", None)
    if quantized is not None:
        method = quantized.get("quant_method") if isinstance(quantized, dict) else quantized.quant_method
        raise BadModel(f"its quantized weights ({method}) cannot be trained. Use the checkpoint that they come from.")
    try:
        encodes = bool(tokenizer("A small test.", add_special_tokens=False).input_ids)
    except Exception:  # noqa: BLE001 - a tokenizer without its vocabulary raises anything
        encodes = False
    if not encodes:
        raise BadModel(f"the tokenizer has no vocabulary: tokenizer.json is missing or damaged. {_REMEDY}.")
    return tokenizer


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
            f"{rows:,} rows. Use the tokenizer of these weights, or enlarge the embedding (resize_token_embeddings)."
        )


def check_weights(path: str, trust: bool, setting: str) -> None:
    """Check the weights of a model. Those of a hub id are verified when they are downloaded.

    Args:
        trust: whether to run code that comes with the model.
        setting: the setting that holds the path, for messages.

    Raises:
        BadModel: a file is missing or truncated, or a tensor is missing or has another shape than config.json says.
    """
    if not Path(path).is_dir():
        return
    import transformers

    config = transformers.AutoConfig.from_pretrained(path, trust_remote_code=trust)
    named = getattr(transformers, (config.architectures or [""])[0], None)
    if named is None and not trust and type(config) not in transformers.AutoModelForCausalLM._model_mapping:
        return
    how: dict[str, Any] = {"trust_remote_code": trust, "output_loading_info": True, "ignore_mismatched_sizes": True}
    try:
        with _quiet():  # on "meta" transformers compares names and shapes, and reads no tensor
            _, report = (named or transformers.AutoModelForCausalLM).from_pretrained(path, device_map="meta", **how)
    except Exception as error:  # noqa: BLE001 - a damaged folder makes transformers raise anything
        text = f"weights are missing, truncated or not of config.json ({one_line(error, 300)}). {_REMEDY}."
        raise BadModel(f"{setting}={path}: {text}") from error
    for name, stored, wanted in sorted(report["mismatched_keys"]):
        raise BadModel(
            f"{setting}={path}: {name} has the shape {list(stored)}, but config.json asks for {list(wanted)}. Use the "
            "config.json that belongs to the weights."
        )
    if missing := sorted(report["missing_keys"]):
        raise BadModel(
            f"{setting}={path}: the weights lack {missing[0]} and {len(missing) - 1} more tensors of config.json; they "
            f"would be random. {_REMEDY}, or use the config.json that belongs to the weights."
        )


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence transformers' progress bar and its table of missing keys: our error says the same in one sentence."""
    from transformers.utils import logging

    level, bar = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bar:
            logging.enable_progress_bar()
