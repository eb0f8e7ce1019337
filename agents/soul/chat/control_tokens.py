"""Keep the control tokens of a model's template out of texts that other people write.

A tokenizer reads `<|im_end|>` inside a message as the token that ends a turn: a row or a partner could end a turn, open
another speaker's, or hide from a decoder. Such texts get a look-alike that reads the same, as in what a judge is shown
(`soul.judge.call.untrusted`), but only for the tokens of this tokenizer, so that all other texts keep their tokens. RL,
SFT and the evaluation of a model that we serve do this; the tokenizer behind an API is unknown.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, TypeVar

from soul.answers.thinking import TAG as THOUGHT_TAG
from soul.chat.paired_tags import is_paired_tag
from soul.judge.call.untrusted import look_alike

Value = TypeVar("Value")
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

    def escape(self, value: Value) -> Value:
        """The value with a look-alike for each control token in its texts, however deep they are."""
        escaped: Value = self._escaped(value)
        return escaped

    def _escaped(self, value: Any) -> Any:
        if isinstance(value, str):
            return self._pattern.sub(lambda found: look_alike(found.group()), value)
        if isinstance(value, Mapping):
            return {name: self._escaped(part) for name, part in value.items()}
        return [self._escaped(part) for part in value] if isinstance(value, list) else value
