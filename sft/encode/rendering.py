"""Conversations as token ids with the spans that are trained, rendered by the model's own chat template.

A trained turn reaches from the end of its generation prompt to its end token (included), and the ids before it are
exactly those that the model gets when it writes that turn. A template may render a turn differently once other turns
follow (Qwen3 strips earlier thinking): then one conversation becomes several sequences. Turns with the same rendering
of what precedes them share a sequence, so a plain template gives one sequence per conversation.

The text of a sequence is tokenised once, without the offsets of its tokens, which would cost a third more. Tokenizers
split at special tokens first, so the tokens before a place in the text are those before the last special token, and
those of the piece from there on, tokenised alone. An earlier turn counts only if the ids at both of its ends are such
pieces: then the model reads and writes exactly these ids. If not (the first word of the turn merges with the last token
of the prompt), the turn gets a sequence of its own, with the prompt tokenised alone.
"""

import re
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import compress, count
from typing import Any

import jinja2
from transformers import PreTrainedTokenizerBase

from sft.encode.messages import Turn
from sft.encode.sequence import EncodedSequence
from soul.errors import SoulError, one_line

# What a chat template can raise: its own errors, and Python's if it reads a key that a turn lacks.
_TEMPLATE_ERRORS = (jinja2.TemplateError, TypeError, ValueError, KeyError, IndexError, AttributeError)


# Fields of a message that mean something: a template that does not read them would leave them out in silence.
MEANINGFUL = (
    *("tool_calls", "function_call", "reasoning_content", "reasoning", "thinking"),
    *("images", "image", "audio", "audios", "videos", "video"),
)
_MEANINGFUL = frozenset(MEANINGFUL)
Tools = list[dict[str, Any]] | None


class TemplateFailure(SoulError):
    """The model's chat template cannot render a conversation."""


@dataclass(frozen=True)
class TrainedTurn:
    """A trained turn as text: the prompt that the model gets, and the same text followed by the turn."""

    prompt: str
    text: str

    @property
    def own(self) -> str:
        """The turn alone."""
        return self.text[len(self.prompt) :]


class ChatEncoder:
    """Encodes conversations with one tokenizer and its chat template."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, template_kwargs: Mapping[str, Any] | None = None) -> None:
        if not tokenizer.chat_template:
            raise TemplateFailure(
                f"{tokenizer.name_or_path or 'the tokenizer'}: there is no chat template. Use the instruction-tuned "
                "model's tokenizer, or put a chat_template.jinja into the model's folder."
            )
        if not tokenizer.is_fast:
            raise TemplateFailure(
                f"{tokenizer.name_or_path or 'the tokenizer'}: not a fast tokenizer; its token offsets are needed. "
                "Save it with tokenizer.json."
            )
        self.tokenizer, self.template_kwargs = tokenizer, dict(template_kwargs or {})
        self._backend = tokenizer.backend_tokenizer
        self._backend.no_truncation()
        self._backend.no_padding()
        special = {
            token.content: number
            for number, token in tokenizer.added_tokens_decoder.items()
            if token.special and not (token.lstrip or token.rstrip or token.single_word)
        }
        self._special_ids = frozenset(special.values())
        words = sorted(special, key=len, reverse=True)
        self._special = re.compile("|".join(re.escape(word) for word in words) or r"(?!)")
        self._alone: dict[str, list[int]] = {}

    def turns(self, messages: Sequence[Turn], trained: Sequence[int], tools: Tools = None) -> list[TrainedTurn]:
        """The trained turns of a conversation as text, for `sequences`.

        A first turn whose rendering does not contain the generation prompt is not trained, because no model could be
        asked to write it: it is context only.
        """
        self._check_read(messages, tools)
        return self._trained_turns(messages, trained, tools)

    def sequences(self, conversations: Sequence[list[TrainedTurn]]) -> list[list[EncodedSequence]]:
        """The sequences of each of several conversations: tokenising their texts together costs less.

        Each trained turn is in exactly one of its conversation's sequences, of which the last is the longest.
        """
        made: list[list[EncodedSequence]] = [[] for _ in conversations]
        left = {number: turns for number, turns in enumerate(conversations) if turns}
        while left:
            last = [turns[-1] for turns in left.values()]
            encoded = iter(self._ids([text for turn in last for text in (turn.prompt, turn.own)]))
            rest = {}
            for number, turns in left.items():
                sequence, rest[number] = self._sequence(turns, next(encoded), next(encoded))
                made[number].append(sequence)
            left = {number: turns for number, turns in rest.items() if turns}
        return [sequences[::-1] for sequences in made]

    # ---- text ------------------------------------------------------------------------------------------------------

    def _check_read(self, messages: Sequence[Turn], tools: Tools) -> None:
        """Refuse what the template would leave out of the text."""
        if tools and "tools" not in self._words:
            raise TemplateFailure(
                "field tools: the chat template does not render tools, so the model would not see them. Use one "
                "that does (model.chat_template), or leave the column out."
            )
        for number, turn in enumerate(messages):
            for name in _MEANINGFUL.intersection(turn):
                if turn[name] and name not in self._words:
                    raise TemplateFailure(
                        f"turn {number} ({turn['role']}), field {name}: the chat template does not render it, so it "
                        "would be left out. Use a template that does (model.chat_template), or remove the field."
                    )

    @cached_property
    def _words(self) -> frozenset[str]:
        """The words of the template, among them all variables and fields that it reads."""
        template = self.tokenizer.chat_template
        texts = template.values() if isinstance(template, dict) else [template]
        return frozenset(word for text in texts for word in re.findall(r"\w+", text))

    def _render(self, conversations: Sequence[Sequence[Turn]], tools: Tools = None, *, ask: bool) -> list[str]:
        """The texts of several conversations: one call costs less than one for each."""
        texts: list[str] = self.tokenizer.apply_chat_template(
            list(map(list, conversations)),
            tools=tools,
            tokenize=False,
            add_generation_prompt=ask,
            **self.template_kwargs,
        )
        return texts

    def _trained_turns(self, messages: Sequence[Turn], trained: Sequence[int], tools: Tools) -> list[TrainedTurn]:
        """The trained turns as text, without a first one that nothing precedes."""
        if not trained:
            return []
        asked = [number for number in trained if number]
        try:
            texts = self._render([messages[: number + 1] for number in trained], tools, ask=False)
            prompts = self._render([messages[:number] for number in asked], tools, ask=True) if asked else []
            opening = [] if len(asked) == len(trained) else [self._opening(texts[0])]
        except _TEMPLATE_ERRORS as error:
            raise TemplateFailure(
                f"the chat template refuses the conversation ({type(error).__name__}: {one_line(error, 200)}). Fix or "
                "drop the row, set data.bad_rows=drop, or use a template that allows such conversations."
            ) from error
        turns = zip(trained, texts, [*opening, *prompts], strict=True)
        return [self._turn(messages[n], n, text, prompt) for n, text, prompt in turns if prompt is not None]

    def _turn(self, turn: Turn, number: int, text: str, prompt: str) -> TrainedTurn:
        if not text.startswith(prompt):
            raise TemplateFailure(
                f"turn {number} ({turn['role']}): the chat template does not render the turn after its own "
                f"generation prompt (which ends in {prompt[-40:]!r}), so the model could not have written it. "
                "Set data.apply_chat_template_kwargs (such as enable_thinking) to match the rows."
            )
        return TrainedTurn(prompt, text[: self._end(text, len(prompt), turn)] + self._next_role)

    @cached_property
    def _next_role(self) -> str:
        """The special token that the template writes after a turn that it does not close, and that ends it (GLM)."""
        probe = [{"role": role, "content": "x"} for role in ("user", "assistant", "user")]
        try:
            answered, followed = self._render([probe[:2], probe], ask=False)
        except _TEMPLATE_ERRORS:
            return ""
        opened = self._special.match(followed, len(answered)) if followed.startswith(answered) else None
        return opened.group() if opened and answered.endswith("x") else ""

    @cached_property
    def _header(self) -> str:
        """The generation prompt; "" if the template has none."""
        probe = [{"role": "user", "content": "x"}]
        (plain,), (prompted,) = self._render([probe], ask=False), self._render([probe], ask=True)
        return prompted[len(plain) :] if prompted.startswith(plain) else ""

    def _opening(self, full: str) -> str | None:
        """The prompt of a first turn: the rendering up to the end of the generation prompt; None if it has none."""
        place = full.find(self._header) if self._header else -1
        return None if place < 0 else full[: place + len(self._header)]

    def _end(self, full: str, start: int, turn: Turn) -> int:
        """The end of the turn that begins at `start` and ends the text: after its end token, before what follows that.

        A template may write a thought before the answer, and the thought may say the answer's words, or hold end tokens
        of its own. So the answer is where its words stand last.
        """
        marks = [match.span() for match in self._special.finditer(full, start)]
        content = "" if turn.get("tool_calls") else turn["content"].strip()  # calls follow the content
        after = _last_end(content, full, start, marks) if content else None
        if after is None:  # the template has changed the content, or left it out
            return marks[-1][1] if marks else len(full)
        return next((stop for first, stop in marks if first >= after), len(full))

    # ---- tokens ----------------------------------------------------------------------------------------------------

    def _sequence(
        self, turns: list[TrainedTurn], ids: list[int], own: list[int]
    ) -> tuple[EncodedSequence, list[TrainedTurn]]:
        """A sequence that ends with the last turn and trains all turns that fit into it; and the turns left over.

        Args:
            ids: the prompt of the last turn, tokenised.
            own: that turn itself, tokenised.
        """
        last = turns[-1]
        spans: list[tuple[int, int]] = []
        left: list[TrainedTurn] = []
        marks = self._marks(last.prompt, ids) if len(turns) > 1 else []
        for turn in turns[:-1]:
            span = self._span(turn, ids, marks) if last.prompt.startswith(turn.text) else None
            if span is None:
                left.append(turn)
            else:
                spans.append(span)
        whole = [*ids, *own]
        spans.append((len(ids), len(whole)))
        # The first token has no context to be predicted from, so it is never trained.
        return EncodedSequence(whole, [(max(start, 1), stop) for start, stop in spans]), left

    def _ids(self, texts: list[str]) -> list[list[int]]:
        return [encoded.ids for encoded in self._backend.encode_batch_fast(texts, add_special_tokens=False)]

    def _marks(self, text: str, ids: list[int]) -> list[tuple[int, int]]:
        """Places of the special tokens, in the text and in the ids, after the place where both begin."""
        texts = [match.start() for match in self._special.finditer(text)]
        places = list(compress(count(), map(self._special_ids.__contains__, ids)))
        marks = list(zip(texts, places, strict=True)) if len(texts) == len(places) else []
        return marks if marks[:1] == [(0, 0)] else [(0, 0), *marks]

    def _span(self, turn: TrainedTurn, ids: list[int], marks: list[tuple[int, int]]) -> tuple[int, int] | None:
        """The token range of an earlier turn; None if the model would have read or written other tokens there."""
        start = self._place(turn.text, len(turn.prompt), ids, marks)
        stop = self._place(turn.text, len(turn.text), ids, marks)
        return (start, stop) if start is not None and stop is not None and start < stop else None

    def _place(self, text: str, end: int, ids: list[int], marks: list[tuple[int, int]]) -> int | None:
        """The number of ids that stand for the text up to `end`; None if no token ends there as it would alone."""
        head, place = marks[bisect_left(marks, end, key=lambda mark: mark[0]) - 1] if end else (0, 0)
        alone = self._tail(text[head:end])
        return place + len(alone) if ids[place : place + len(alone)] == alone else None

    def _tail(self, text: str) -> list[int]:
        """The ids of the last piece of a text, tokenised alone. Cached: there are only a few such pieces."""
        if text not in self._alone:
            if len(self._alone) > 1000:
                self._alone.clear()
            (self._alone[text],) = self._ids([text])
        return self._alone[text]


def _last_end(words: str, text: str, start: int, marks: Sequence[tuple[int, int]]) -> int | None:
    """The end of the last occurrence of the words after `start`; None if there is none.

    A special token (one of the `marks`) counts as a whole or not at all: the "end" in <|im_end|> is no answer.
    """
    place = text.rfind(words, start)
    while place >= 0:
        stop = place + len(words)
        if not any(first < edge < last for first, last in marks for edge in (place, stop)):
            return stop
        place = text.rfind(words, start, stop - 1)
    return None
