"""A turn of UserLLM: its text without thinking, label and end token, and the counts that the metrics need."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from typing import NamedTuple

from soul.answers.thinking import spoken_as_user
from soul.judge.call.untrusted import contentless
from soul.leaks.quotations import runs

END = "<|endconversation|>"
_END = re.compile(re.escape(END), re.IGNORECASE)
_GARBLED_END = re.compile(r"[<\[({|][|/\s]{0,3}end[\s_-]?(?:of[\s_-]?)?conversation[|/\s]{0,3}[>\])}|]", re.IGNORECASE)
_ECHO_WORDS, _LOOP_WORDS = 10, 4
_TOKEN = re.compile(r"\w+|[^\w\s]")
# The words that the original leaves out of the overlap; others, such as "not" or "please", count.
STOP_WORDS = frozenset(
    """
    a an the this that these i me my we us our you your it its they them their there
    are is was were be can could do does did had has have might should will would
    how what when where which who why and as at but by for from if in into of on or so then to with
    """.split()
)
_LONG_TURN = 20  # a shorter turn may repeat itself, as in "no no no no"


class Turn(NamedTuple):
    """The text of a turn, and whether the turn ends the conversation."""

    text: str
    ends: bool

    @property
    def only_ends(self) -> bool:
        """Whether the turn ends the conversation and has no text."""
        return self.ends and contentless(self.text)


def spoken(text: str) -> Turn:
    """The policy's turn without think block, label and end token. What follows the end token is not said."""
    said, *rest = _END.split(spoken_as_user(text), maxsplit=1)
    return Turn(said.strip(), bool(rest))


def garbled_end(text: str) -> bool:
    """True if the policy tried to end the conversation without the end token, as in "[end conversation]"."""
    turn = spoken_as_user(text)
    return _END.search(turn) is None and _GARBLED_END.search(turn) is not None


def echoes(turn: str, prompt: str, own: Sequence[str]) -> bool:
    """True if a turn repeats ten words in a row of its prompt that are not the person's own.

    Args:
        own: the parts of the prompt that the person may repeat: the question, what the person said before.
    """
    allowed = {run for text in own for run in _runs(text, _ECHO_WORDS)}
    return any(run not in allowed for run in _runs(turn, _ECHO_WORDS) & _runs(prompt, _ECHO_WORDS))


def loops(turn: str) -> bool:
    """True if a long turn repeats itself: fewer than two in five of its runs of four words are new."""
    total = len(normalized(turn).split()) - _LOOP_WORDS + 1
    return total >= _LONG_TURN and len(_runs(turn, _LOOP_WORDS)) < 0.4 * total


def _runs(text: str, size: int) -> set[tuple[str, ...]]:
    return set(runs(normalized(text).split(), size))


def turn_tokens(text: str) -> set[str]:
    """The different tokens of a text in lower case: words, and single punctuation marks and symbols."""
    found = _TOKEN.findall(text.lower())
    return {token for token in found if token[0].isalnum() or unicodedata.category(token[0])[0] in "PS"}


def _telling(text: str) -> set[str]:
    return {token for token in turn_tokens(text) - STOP_WORDS if token.isalnum()}


def intent_overlap(intent: str, turn: str) -> float:
    """The share of the turn's different words, without stop words, that also occur in the intent; 0 if it has none."""
    said = _telling(turn)
    return len(said & _telling(intent)) / len(said) if said else 0.0


def choices_mentioned(choices: Sequence[str], turn: str) -> tuple[int, int]:
    """The number of different options that a turn mentions, and the number of different options.

    An option is mentioned if its words occur in the turn, in a row, ignoring case and punctuation.
    """
    options, text = {normalized(choice) for choice in choices}, f" {normalized(turn)} "
    return sum(f" {option} " in text for option in options), len(options)


def normalized(text: str) -> str:
    """The text as options are compared: lower case, words and digits with single spaces between them."""
    return " ".join(re.sub(r"[\W_]+", " ", text.lower()).split())
