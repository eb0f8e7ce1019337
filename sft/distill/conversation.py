"""A seat's conversation as an SFT row, and what makes two of them the same.

The messages are what the seat saw and said; nothing is rewritten. What came after its last turn goes, because the
policy never saw it. A turn that cannot be trained makes the conversation unusable, for a named reason.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from soul.message import Message

TRAINED = "assistant"
_GAPS = re.compile(r"[\W_]+")


class Unusable(Exception):
    """A conversation cannot be an SFT row; the text is the reason, a word to count by."""


@dataclass(frozen=True)
class Fingerprints:
    """Digests of a seat's conversation: two that differ only in case, blanks and punctuation have the same.

    Attributes:
        whole: of all messages.
        said: of the trained turns.
    """

    seat: str
    whole: str
    said: str


def trainable(messages: Sequence[Message]) -> list[Message]:
    """The conversation up to the last turn of the policy.

    Raises:
        Unusable: the policy never spoke, a turn of it is blank, or a text cannot be written as UTF-8.
    """
    last = max((place for place, message in enumerate(messages) if message["role"] == TRAINED), default=None)
    if last is None:
        raise Unusable("no turn")
    kept: list[Message] = [{"role": m["role"], "content": m["content"]} for m in messages[: last + 1]]
    if not all(message["content"].strip() for message in kept if message["role"] == TRAINED):
        raise Unusable("blank turn")
    try:
        "".join(message["content"] for message in kept).encode()
    except UnicodeEncodeError:
        raise Unusable("broken character") from None
    return kept


def seat_fingerprints(seat: str, conversation: Sequence[Message]) -> Fingerprints:
    """The digests of a trainable conversation."""
    said = [message["content"] for message in conversation if message["role"] == TRAINED]
    whole = [text for message in conversation for text in (message["role"], message["content"])]
    return Fingerprints(seat, digest(whole), digest(said))


def digest(texts: Sequence[str]) -> str:
    """Of the normalised texts, in order."""
    return hashlib.blake2b(b"".join(_digest(text) for text in texts), digest_size=16).hexdigest()


@lru_cache(maxsize=1024)  # the samples of a row share a prompt, which is most of their text
def _digest(text: str) -> bytes:
    return hashlib.blake2b(normalised(text).encode(), digest_size=16).digest()


def normalised(text: str) -> str:
    """The words of a text, in lower case; of a text without any, what stands there."""
    folded = unicodedata.normalize("NFKC", text).casefold()
    return _GAPS.sub(" ", folded).strip() or folded.strip()
