"""A turn of UserLLM: its text without thoughts, label and end token, and the counts that the metrics need."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from soul.answers.thinking import without_thinking
from soul.judge.call.untrusted import contentless
from soul.metrics.lexical import content_words

END = "<|endconversation|>"
_LABEL = re.compile(r"(?:\*\*)?(?:user|human)(?:\*\*)?\s*:(?:\*\*)?\s*", re.IGNORECASE)
_END = re.compile(re.escape(END), re.IGNORECASE)


class Turn(NamedTuple):
    """What the policy said, and whether it ended the conversation with it."""

    text: str
    ends: bool

    @property
    def only_ends(self) -> bool:
        """Whether it ends the conversation and says nothing."""
        return self.ends and contentless(self.text)


def spoken(text: str) -> Turn:
    """The policy's turn without think block, label and end token."""
    said = without_thinking(text).strip()
    label = _LABEL.match(said)
    said = said[label.end() :] if label else said
    return Turn(_END.sub(" ", said).strip(), _END.search(said) is not None)


def intent_overlap(intent: str, turn: str) -> float:
    """The share of the turn's content words that the intent has too; 0 of a turn without any."""
    of_intent, of_turn = set(content_words(intent)), content_words(turn)
    return sum(word in of_intent for word in of_turn) / len(of_turn) if of_turn else 0.0


def choices_mentioned(choices: Sequence[str], turn: str) -> tuple[int, int]:
    """How many of the different options a turn mentions as substrings, case and punctuation aside; and how many there
    are."""
    options, said = {normalized(choice) for choice in choices}, normalized(turn)
    return sum(option in said for option in options), len(options)


def normalized(text: str) -> str:
    """The text in the form in which options are compared: lower case, no punctuation, single blanks."""
    return " ".join(re.sub(r"[^\w\s]|_", "", text.lower()).split())
