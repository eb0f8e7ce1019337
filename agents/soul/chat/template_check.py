"""Check that a chat template can carry our tasks' conversations, and complete it where it cannot.

A conversation of instructions, questions and three answers is rendered as a whole, as a server does, and piece by
piece, as training builds it (`rendering.py`). What differs between the two decides whether a model can be trained.
"""

import os
import re
import signal
import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from soul.chat.adapted_template import Adaptation
from soul.chat.rendering import ChatRenderer
from soul.errors import SoulError, one_line
from soul.message import Message

LIMIT_S = 30.0  # of computing; a template takes far less than one
_SYSTEM: Message = {"role": "system", "content": "You are Mira, a florist."}
_USERS: tuple[Message, ...] = tuple(
    {"role": "user", "content": text} for text in ("Good morning.", "Any tulips left?", "Until tomorrow then.")
)
_ANSWERS: tuple[Message, ...] = tuple(
    {"role": "assistant", "content": text} for text in ("Hello there.", "Only red ones.", "See you soon.")
)
_DIALOGUE: tuple[Message, ...] = (_SYSTEM, *(turn for pair in zip(_USERS, _ANSWERS, strict=True) for turn in pair))


class BadTemplate(SoulError):
    """A chat template with which a model cannot be trained as it is served."""


@dataclass(frozen=True)
class ChatFormat:
    """The template and the end tokens with which a model reads our conversations.

    Attributes:
        template: the template to train and serve with; None: the model's own.
        stop_ids: every token id that ends a turn.
        added_stop_ids: those that the model's generation_config does not list.
        dialogue_problem: why dialogues cannot be trained; None if they can. Tasks of one turn can, in any case.
        notes: what was changed, for the plan.
    """

    template: str | None
    stop_ids: frozenset[int]
    added_stop_ids: tuple[int, ...] = ()
    dialogue_problem: str | None = None
    notes: tuple[str, ...] = ()


def fit_template(
    tokenizer: Any,
    stop_ids: Collection[int],
    template_kwargs: Mapping[str, Any] | None = None,
    setting: str = "custom_chat_template",
) -> ChatFormat:
    """Find the template and the end tokens with which a model reads our conversations.

    Args:
        tokenizer: a Hugging Face tokenizer with a chat template.
        stop_ids: the end tokens of the model's generation_config, and the tokenizer's.
        template_kwargs: arguments of the template.
        setting: the setting that replaces the template, for messages.

    Raises:
        BadTemplate: it does not show our messages, has no generation prompt, or its turns have no end.
    """
    try:
        with _bounded():
            return _Check(tokenizer, stop_ids, template_kwargs or {}, setting).run()
    except _TooLong:
        raise BadTemplate(
            f"rendering a few short messages takes the chat template more than {LIMIT_S:g} s: it has a long loop. Use "
            f"another one ({setting})."
        ) from None


class _TooLong(BaseException):
    """The template was still rendering at the end of the time; no handler of a template's own errors catches it."""


@contextmanager
def _bounded() -> Iterator[None]:
    """Raise _TooLong in a block that computes for longer than LIMIT_S; Python can do so in the main thread only."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(*_: object) -> None:
        raise _TooLong

    before = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, LIMIT_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


class _Check:
    """The steps of `fit_template`, each of which may complete the template for the next one."""

    def __init__(self, tokenizer: Any, stop_ids: Collection[int], kwargs: Mapping[str, Any], setting: str) -> None:
        self.tokenizer, self.stop_ids, self.kwargs, self.setting = tokenizer, frozenset(stop_ids), kwargs, setting
        template = tokenizer.chat_template
        self.own = template["default"] if isinstance(template, dict) else template
        self.adaptation = Adaptation()
        self.notes: list[str] = []

    def run(self) -> ChatFormat:
        self._check_shown()
        self._complete()
        self._replace_default_system()
        self._check_generation_prompt()
        close = self._end_of_turn()
        added = () if close in self.stop_ids else (close,)
        if added:
            word = self.tokenizer.convert_ids_to_tokens(close)
            self.notes.append(
                f"answers end at {word}, which the model's generation_config does not list as an end token"
            )
        self.stop_ids |= set(added)
        dialogue_problem = self._growth_problem(close)
        template = replace(self.adaptation, defaults=self.kwargs).apply(self.own)
        changed = None if template == self.tokenizer.chat_template else template
        return ChatFormat(changed, self.stop_ids, added, dialogue_problem, tuple(self.notes))

    def _renderer(self) -> ChatRenderer:
        return ChatRenderer(self.tokenizer, self.stop_ids, self.adaptation.apply(self.own), self.kwargs)

    def _problem(self, messages: Sequence[Message]) -> str | None:
        """The reason why these messages cannot be rendered; None if the text contains all of them."""
        try:
            text = self._renderer().text(messages)
        except Exception as error:  # noqa: BLE001 - a template is a program of its own
            return f"{type(error).__name__}: {one_line(error, 200)}"
        place = 0
        for message in messages:
            place = text.find(message["content"], place)
            if place < 0:
                return f"the {message['role']} message {message['content']!r} is missing in {text[:200]!r}"
        return None

    def _check_shown(self) -> None:
        if problem := self._problem(_USERS[:1]):
            raise BadTemplate(
                f"the chat template fails on a single user message ({problem}). Use the template of an instruct "
                f"model: chat_template.jinja in the model's folder, or {self.setting}."
            )

    def _complete(self) -> None:
        """Find the completions without which the template refuses or hides messages."""
        first, second = _USERS[:2]
        steps: list[tuple[list[Message], dict[str, Any], str]] = [
            ([_SYSTEM, first], {"fold_system": True}, "takes no system message: instructions become a user message"),
            ([first, second], {"merge_users": True}, "takes no two user messages in a row: they become one"),
            ([_SYSTEM], {"lone_system": True}, "needs a user message first: instructions alone become one"),
            ([_SYSTEM, _ANSWERS[0], first], {"lone_system": True}, ""),
        ]
        for messages, change, note in steps:
            if (problem := self._problem(messages)) is None:
                continue
            self.adaptation = replace(self.adaptation, **change)
            if self._problem(messages):
                roles = ", ".join(message["role"] for message in messages)
                raise BadTemplate(
                    f"the chat template cannot render messages of {roles} ({problem}), which our tasks have. Set "
                    f"{self.setting} to a template that can."
                )
            if note:
                self.notes.append(f"the chat template {note}")

    def _replace_default_system(self) -> None:
        """Replace the template's own system prompt by an empty one: it would come before every persona."""
        default = self._default_system()
        if not default:
            return
        before, self.adaptation = self.adaptation, replace(self.adaptation, empty_system=True)
        if self._problem(_USERS[:1]) or self._default_system():
            self.adaptation = before
            self.notes.append(f"the chat template writes a system prompt of its own, which stays: {default!r}")
        else:
            self.notes.append(f"the system prompt of the chat template is replaced by an empty one: {default!r}")

    def _default_system(self) -> str:
        """The text that the template adds to a conversation without a system message; "" if it adds none."""
        empty: Message = {"role": "system", "content": ""}
        if self.adaptation.fold_system or self._problem([_SYSTEM, _USERS[0]]) or self._problem([empty, _USERS[0]]):
            return ""
        text, bare = (self._renderer().text(messages) for messages in (_USERS[:1], [empty, _USERS[0]]))
        start = _shared(text, bare)
        end = _shared(text[start:][::-1], bare[start:][::-1])
        added = text[start : len(text) - end]
        return added.strip() if re.search(r"\w{2,}\W+\w{2,}", added) else ""

    def _check_generation_prompt(self) -> None:
        """Refuse a template whose prompt does not reach up to the answer."""
        messages = [_SYSTEM, _USERS[0], _ANSWERS[0]]
        renderer = self._renderer()
        prompt, whole = renderer.text(messages[:2]), renderer.text(messages, ask=False)
        place = whole.rfind(_ANSWERS[0]["content"])
        header = whole[_shared(prompt, whole) : place]
        if re.sub(r"</?think>|\s", "", header) and len(prompt) < place:
            raise BadTemplate(
                f"the chat template has no generation prompt: it writes {header!r} before an answer and does not ask "
                f"for it with add_generation_prompt, so the model would have to write that itself. Set {self.setting}."
            )

    def _end_of_turn(self) -> int:
        """The token that ends a turn: the template's own, or the one that begins the next turn (GLM)."""
        answered = [_SYSTEM, _USERS[0], _ANSWERS[0]]
        closed = self._after_answer(self._renderer().text(answered, ask=False))
        if closed is not None:
            return closed
        opened = self._after_answer(self._renderer().text([*answered, _USERS[1]]))
        if opened is not None and opened in self.stop_ids:
            word = str(self.tokenizer.convert_ids_to_tokens(opened))
            self.notes.append(f"the chat template closes no turn: {word} of the next role ends it")
            return opened
        raise BadTemplate(
            "the chat template never closes the assistant's turn, and what follows it is no end token of the model's "
            f"generation_config, so an answer would have no end. Set {self.setting} to a template that closes it."
        )

    def _after_answer(self, text: str) -> int | None:
        """The special token right after the answer in a text, where only white space may come before it."""
        tail = text.rpartition(_ANSWERS[0]["content"])[2].lstrip()
        special = {token.content: number for number, token in self.tokenizer.added_tokens_decoder.items()}
        special |= {word: self.tokenizer.convert_tokens_to_ids(word) for word in self.tokenizer.all_special_tokens}
        words = sorted(special, key=len, reverse=True)
        return next((special[word] for word in words if tail.startswith(word)), None)

    def _growth_problem(self, close: int) -> str | None:
        """The reason why dialogues cannot be trained; None if they can, in one sequence or in one for each turn.

        After each answer but the last, the context that grew is compared with the whole conversation as served.
        """
        renderer = self._renderer()
        text = renderer.text(_DIALOGUE[:2])
        ids = renderer.ids(text)
        for number in (2, 4):
            said, messages = _DIALOGUE[number]["content"], _DIALOGUE[: number + 2]
            ids = [*ids, *renderer.ids(said), close]
            whole, growth = renderer.text(messages), renderer.growth(text, ids, said, messages)
            if growth is None and whole.startswith(renderer.text(messages[:2], ask=False)):
                self.notes.append(
                    "the chat template writes earlier answers differently once others follow, so each turn of a "
                    f"dialogue becomes a sequence of its own (for Qwen3, {self.setting}=qwen3 keeps one)"
                )
                return None
            if growth is None or [*ids, *growth.ids] != renderer.ids(whole):
                reason = (
                    "it moves or changes what was said before the answer"
                    if growth is None
                    else "the tokens of an answer join with those around it"
                )
                return (
                    f"the chat template cannot be continued turn by turn: {reason}. As served: {whole!r}. As trained: "
                    f"{text + said!r} and what follows. Set {self.setting} to a template that appends."
                )
            text, ids = whole, renderer.ids(whole)
        return None


def _shared(one: str, other: str) -> int:
    return len(os.path.commonprefix([one, other]))
