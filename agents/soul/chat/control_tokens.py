"""Keep the control tokens of a model's template out of texts that other people write.

A tokenizer reads `<|im_end|>` inside a message as the token that ends a turn: a row or a partner could end a turn, open
another speaker's, or hide from a decoder. Such texts get a look-alike that reads the same, as in what a judge is shown
(`soul.judge.call.untrusted`), but only for the tokens of this tokenizer, so that all other texts keep their tokens. RL,
SFT and the evaluation of a model that we serve do this; the tokenizer behind an API is unknown.

Tags such as <answer> that a tokenizer marks as special are words of an answer all the same, but decoding leaves special
tokens out. Training keeps these tags (`rendering.py`), so a checkpoint lists them as ordinary added tokens, and so does
the copy of a tokenizer with which we serve a base model. Their ids and their places in a prompt stay the same.
"""

import json
import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from soul.answers.thinking import TAG as THOUGHT_TAG
from soul.files.whole_file import write_whole
from soul.judge.call.untrusted import look_alike

_BARS = ("|", "\uff5c")  # DeepSeek does not mark <｜User｜> as special
_PLAIN_WORD = re.compile(r"\w*")  # `sop` of GLM: a look-alike would damage ordinary text


class ControlTokens:
    """The control tokens of a tokenizer: its special tokens, except tags of thoughts and paired tags such as <answer>.

    Prompts ask for those tags, and answers that are trained contain them.
    """

    def __init__(self, tokenizer: Any) -> None:
        added = tokenizer.added_tokens_decoder.values()
        words = {token.content for token in added if token.special or any(bar in token.content for bar in _BARS)}
        kept = (THOUGHT_TAG, _PLAIN_WORD)
        control = [
            word
            for word in words
            if not is_paired_tag(word, words) and not any(pattern.fullmatch(word) for pattern in kept)
        ]
        self._pattern = re.compile("|".join(map(re.escape, sorted(control, key=len, reverse=True))) or r"(?!)")

    def escape(self, value: Any) -> Any:
        """The value with a look-alike for each control token in its texts, however deep they are."""
        if isinstance(value, str):
            return self._pattern.sub(lambda found: look_alike(found.group()), value)
        if isinstance(value, Mapping):
            return {name: self.escape(part) for name, part in value.items()}
        return [self.escape(part) for part in value] if isinstance(value, list) else value


def is_paired_tag(word: str, words: Collection[str]) -> bool:
    """True for a token of a pair such as <answer> and </answer>; False for <s> and </s>."""
    name = word.strip("</>")
    pair = {f"<{name}>", f"</{name}>"}
    return word in pair and name.isidentifier() and name != "s" and all(each in words for each in pair)


def special_tags(tokenizer: Any, stop_ids: Collection[int]) -> frozenset[str]:
    """The paired tags that a tokenizer marks as special, except tokens that end a turn."""
    special = {token.content: number for number, token in tokenizer.added_tokens_decoder.items() if token.special}
    return frozenset(
        word for word, number in special.items() if number not in stop_ids and is_paired_tag(word, special)
    )


def unmark(folder: Path, tags: Collection[str]) -> None:
    """Rewrite the files of a saved tokenizer so that these tags are not special."""
    for name in ("tokenizer.json", "tokenizer_config.json"):
        file = folder / name
        if not file.exists():
            continue
        saved = json.loads(file.read_text(encoding="utf-8"))
        for token in (*saved.get("added_tokens", ()), *saved.get("added_tokens_decoder", {}).values()):
            token["special"] = token["special"] and token["content"] not in tags
        if "extra_special_tokens" in saved:
            saved["extra_special_tokens"] = [word for word in saved["extra_special_tokens"] if word not in tags]
        write_whole(file, json.dumps(saved, ensure_ascii=False, indent=2))
