"""The end tokens of a model, and the arguments with which vLLM serves it. Needs transformers."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from soul.chat.template_check import BadTemplate, fit_template
from soul.chat.template_file import read_template
from soul.files.whole_file import write_whole


def stop_ids(path: str, trust: bool, tokenizer: Any) -> frozenset[int]:
    """The token ids at which vLLM ends an answer: those of generation_config.json, and the tokenizer's end token.

    Without a generation_config.json, those of config.json count.

    Args:
        trust: whether to run code that comes with the model.
    """
    from transformers import AutoConfig

    found = _generation_config(path).get("eos_token_id")
    if found is None:
        found = getattr(AutoConfig.from_pretrained(path, trust_remote_code=trust), "eos_token_id", None)
    listed = found if isinstance(found, list) else [found]
    return frozenset(int(each) for each in (*listed, tokenizer.eos_token_id) if each is not None)


def _generation_config(path: str) -> dict[str, Any]:
    """The values of a model's generation_config.json; empty if there is none."""
    from transformers import GenerationConfig

    try:
        said: dict[str, Any] = GenerationConfig.from_pretrained(path).to_diff_dict()
    except OSError:
        return {}
    return said


def server_arguments(model: str, given: Sequence[str], folder: Path) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Arguments of `vllm serve` with which a server shows a model its conversations as training does.

    Args:
        given: the user's arguments; ours come after them and complete a chat template that they name.
        folder: gets the completed chat template and generation_config.json, where the model's own do not do.

    Returns:
        The arguments, and what was changed, for people.

    Raises:
        BadTemplate: the chat template cannot carry our tasks' conversations.
    """
    from transformers import AutoTokenizer

    trust = "--trust-remote-code" in given
    try:
        tokenizer = AutoTokenizer.from_pretrained(model, trust_remote_code=trust)
    except (OSError, ValueError):
        return (), ()  # the server cannot load it either, and says why
    if "--chat-template" in given[:-1]:
        named = given[given.index("--chat-template") + 1]
        tokenizer.chat_template = read_template(named, "--chat-template", tokenizer.get_vocab())
    if not tokenizer.chat_template:
        raise BadTemplate(f"{model}: the tokenizer has no chat template. Use an instruct model, or -- --chat-template.")
    listed = stop_ids(model, trust, tokenizer)
    try:
        found = fit_template(tokenizer, listed, setting="--chat-template")
    except BadTemplate as error:
        raise BadTemplate(f"{model}: {error}") from error
    arguments: list[str] = []
    if found.template is not None:
        write_whole(folder / "chat_template.jinja", found.template)
        arguments += ["--chat-template", str(folder / "chat_template.jinja")]
    if found.added_stop_ids:
        ends = {"eos_token_id": sorted({*listed, *found.added_stop_ids})}
        write_whole(folder / "generation_config.json", json.dumps(_generation_config(model) | ends))
        arguments += ["--generation-config", str(folder)]
    return tuple(arguments), found.notes
