"""The token ids that a model reads in a conversation, and how its context grows from turn to turn.

A server renders the whole conversation for each turn. Training keeps the sampled ids and adds what the template writes
after them, so both contexts are the same text. Where a template writes earlier turns differently once others follow
(Qwen3 drops thoughts), or the sampled ids stand for another text than the server would show, no such growth exists.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

from soul.chat.control_tokens import special_tags
from soul.message import Message


class Growth(NamedTuple):
    """The context after a sampled turn: its whole text, and the token ids that are new in it."""

    text: str
    ids: list[int]


class ChatRenderer:
    """Renders conversations with one tokenizer and its chat template, as vLLM's server does.

    Args:
        tokenizer: a Hugging Face tokenizer.
        stop_ids: token ids that end a turn.
        template: replaces the tokenizer's own.
        template_kwargs: arguments of the template (enable_thinking, ...).
        escape: takes the control tokens out of the messages' texts; None: they are rendered as they are.
    """

    def __init__(
        self,
        tokenizer: Any,
        stop_ids: Collection[int],
        template: str | None = None,
        template_kwargs: Mapping[str, Any] | None = None,
        escape: Callable[[list[dict[str, Any]]], list[dict[str, Any]]] | None = None,
    ) -> None:
        self.tokenizer, self.stop_ids, self._escape = tokenizer, frozenset(stop_ids), escape
        self._kwargs = {**(template_kwargs or {}), **({"chat_template": template} if template is not None else {})}

    def text(self, messages: Sequence[Message], ask: bool = True) -> str:
        """The text of a conversation; if `ask` is true, it ends with the generation prompt."""
        plain = [dict(message) for message in messages]
        plain = self._escape(plain) if self._escape else plain
        rendered = self.tokenizer.apply_chat_template(plain, tokenize=False, add_generation_prompt=ask, **self._kwargs)
        return str(rendered)

    def ids(self, text: str) -> list[int]:
        """The token ids of a rendered text."""
        return list(self.tokenizer(text, add_special_tokens=False)["input_ids"])

    def growth(self, text: str, ids: Sequence[int], said: str, messages: Sequence[Message]) -> Growth | None:
        """Continue the context of a turn with what the template writes after it.

        Args:
            text: the context that the turn was sampled in.
            ids: the ids of that context and of the turn.
            said: the turn as the other speakers and the server see it.
            messages: the conversation, with this turn and what follows it.

        Returns:
            None: the ids so far are no prefix of what the server would show the model.
        """
        whole = self.text(messages)
        if whole.startswith(text + said):
            tail = self.ids(whole[len(text + said) :])
            if ids[-1] not in self.stop_ids:  # cut off: the template closes the turn
                return Growth(whole, tail)
            if tail and tail[0] == ids[-1]:
                return Growth(whole, tail[1:])
            return None
        # A tokenizer may drop the blank that a template writes before an answer (Llama 2): the ids agree all the same.
        all_ids = self.ids(whole)
        return Growth(whole, all_ids[len(ids) :]) if all_ids[: len(ids)] == list(ids) else None

    def decode(self, ids: Sequence[int]) -> tuple[str, bool]:
        """The text of a sampled turn, and whether the ids without the stop token stand for exactly this text.

        Special tokens are left out, but for paired tags (<think> and </think>): they are words of the answer.
        """
        body = list(ids[:-1] if ids[-1] in self.stop_ids else ids)
        shown = [token for token in body if token not in self._control_ids]
        text = str(self.tokenizer.decode(shown, skip_special_tokens=False))
        # The token limit can cut a turn inside a character, which then decodes to replacement characters. Servers never
        # send those, so strip them: training and evaluation must judge the same text.
        said = text.rstrip("\ufffd")
        return said, shown == body and said == text

    @cached_property
    def _control_ids(self) -> frozenset[int]:
        tags, added = special_tags(self.tokenizer, self.stop_ids), self.tokenizer.added_tokens_decoder.items()
        return self.stop_ids | {number for number, token in added if token.special and token.content not in tags}
