"""The end tokens of a model, and how vLLM and our requests show it its conversations. Needs transformers."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from soul.chat.control_tokens import ControlTokens, special_tags, unmark
from soul.chat.template_check import BadTemplate, fit_template
from soul.chat.template_file import TEMPLATE, read_template, saved_template
from soul.files.whole_file import write_whole
from soul.message import Escape


def stop_ids(path: str, trust: bool, tokenizer: Any) -> frozenset[int]:
    """The token ids at which vLLM ends an answer: those of generation_config.json, and the tokenizer's end token.

    Without a generation_config.json, those of config.json count. `trust` runs code that comes with the model.
    """
    from transformers import AutoConfig

    found = _generation_config(path).get("eos_token_id")
    if found is None:
        found = getattr(AutoConfig.from_pretrained(path, trust_remote_code=trust), "eos_token_id", None)
    listed = found if isinstance(found, list) else [found]
    return frozenset(int(each) for each in (*listed, tokenizer.eos_token_id) if each is not None)


def _generation_config(path: str) -> dict[str, Any]:
    from transformers import GenerationConfig

    try:
        return dict(GenerationConfig.from_pretrained(path).to_diff_dict())
    except OSError:
        return {}


class ServedChat(NamedTuple):
    """The parts of `vllm serve` and of our requests with which a model reads its conversations as in training.

    Attributes:
        arguments: they come after the user's.
        notes: what was changed, for people.
        escape: takes the control tokens out of messages; None: the tokenizer cannot be loaded.
    """

    arguments: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    escape: Escape | None = None


def served_chat(model: str, adapter: Path | None, given: Sequence[str], folder: Path) -> ServedChat:
    """Find how a server shows a model its conversations as training does.

    Args:
        adapter: the folder of a LoRA adapter; the template in it replaces the model's.
        given: the user's arguments; a chat template that they name replaces both.
        folder: gets the chat template, generation_config.json and the tokenizer, where the model's own do not do.

    Raises:
        BadTemplate: the chat template cannot carry our tasks' conversations.
    """
    from transformers import AutoTokenizer

    trust, place = "--trust-remote-code" in given, _value(given, "--tokenizer") or model
    try:
        tokenizer = AutoTokenizer.from_pretrained(place, trust_remote_code=trust)
    except (OSError, ValueError):
        return ServedChat()  # the server cannot load it either, and says why
    own, named = tokenizer.chat_template, _value(given, "--chat-template")
    if named is not None:
        tokenizer.chat_template = read_template(named, "--chat-template", tokenizer.get_vocab())
    elif adapter is not None:
        tokenizer.chat_template = saved_template(adapter) or own
    if not tokenizer.chat_template:
        raise BadTemplate(f"{model}: the tokenizer has no chat template. Use an instruct model, or -- --chat-template.")
    listed = stop_ids(model, trust, tokenizer)
    try:
        found = fit_template(tokenizer, listed, setting="--chat-template")
    except BadTemplate as error:
        raise BadTemplate(f"{adapter or model}: {error}") from error
    arguments: list[str] = []
    notes = list(found.notes)
    template = found.template or tokenizer.chat_template
    if template != own:
        write_whole(folder / TEMPLATE, template)
        arguments += ["--chat-template", str(folder / TEMPLATE)]
    if found.added_stop_ids:
        ends = {"eos_token_id": sorted({*listed, *found.added_stop_ids})}
        write_whole(folder / "generation_config.json", json.dumps(_generation_config(model) | ends))
        arguments += ["--generation-config", str(folder)]
    if tags := special_tags(tokenizer, found.stop_ids):
        tokenizer.save_pretrained(folder / "tokenizer")
        unmark(folder / "tokenizer", tags)
        arguments += ["--tokenizer", str(folder / "tokenizer")]
        notes.append(f"{', '.join(sorted(tags))} stay in answers: they are special tokens, which servers leave out")
    return ServedChat(tuple(arguments), tuple(notes), ControlTokens(tokenizer).escape)


def _value(words: Sequence[str], name: str) -> str | None:
    """The value of an argument in the forms that vLLM takes: `--chat-template X` or `--chat_template=X`."""
    found: str | None = None
    for word, following in zip(words, (*words, None)[1:], strict=True):
        key, equals, value = word.partition("=")
        if key.replace("_", "-") == name:
            found = value if equals else following
    return found
