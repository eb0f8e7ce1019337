"""Turn a seat's conversation into an SFT row, and fingerprint it so that duplicates can be found.

The messages are exactly those that the seat saw and wrote. Messages after its last turn are dropped, because the policy
never saw them. A turn that cannot be trained makes the conversation unusable, for a named reason.
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
    """A conversation cannot be an SFT row. The text is a short reason, under which it is counted."""


@dataclass(frozen=True)
class Fingerprints:
    """Digests of a seat's conversation, which ignore case, white space and punctuation.

    Attributes:
        whole: digest of all messages.
        trained: digest of the trained turns.
    """

    seat: str
    whole: str
    trained: str


def trainable(messages: Sequence[Message]) -> list[Message]:
    """Cut the conversation after the policy's last turn.

    Raises:
        Unusable: the policy has no turn, one of its turns is blank, or a text cannot be encoded as UTF-8.
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
    """Fingerprint a trainable conversation."""
    trained = [message["content"] for message in conversation if message["role"] == TRAINED]
    whole = [text for message in conversation for text in (message["role"], message["content"])]
    return Fingerprints(seat, digest(whole), digest(trained))


def digest(texts: Sequence[str]) -> str:
    """Hash the normalised texts, in order."""
    return hashlib.blake2b(b"".join(_digest(text) for text in texts), digest_size=16).hexdigest()


@lru_cache(maxsize=1024)  # the samples of a row share a prompt, which is most of their text
def _digest(text: str) -> bytes:
    return hashlib.blake2b(normalised(text).encode(), digest_size=16).digest()


def normalised(text: str) -> str:
    """The words of a text in lower case; a text without words stays as it is, so that "!" and "?" differ."""
    folded = unicodedata.normalize("NFKC", text).casefold()
    return _GAPS.sub(" ", folded).strip() or folded.strip()
