"""People and what they wrote, for TwinVoice's training questions: posts, messages, and the dialogue of novels.

    Bluesky     .jsonl[.gz] of posts: text, author or did, uri, created_at, and reply_to, reply_parent or
                reply.parent.uri
    Telegram    .ndjson[.gz] of Pushshift's dump: message, id, date, from_id, to_id or peer_id, and reply_to_msg_id or
                reply_to
    Gutenberg   .txt, plain text of a novel with the project's header

A post or message counts as a reply if what it replies to is in the same file. In a novel, an utterance belongs to a
character if its paragraph says so ('"...," said Emma', 'Emma replied, "..."'), and it replies to the two paragraphs
before it.

Left out, and counted: people whose texts are not English (a single reply is tested again before it becomes a right
answer); texts that have a link, an e-mail address or a telephone number, or that are shorter than four words or longer
than eighty; and people who repeat themselves as bots do. Handles become "@user", and users are named by a hash.
"""

import hashlib
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from data.reading import read_json_lines, read_text
from soul.metrics.lexical import FUNCTION_WORDS, words

SHORTEST, LONGEST = 4, 80  # words of a text
ENGLISH = 0.2  # share of English function words in a person's texts; other languages share few of them
REPEATED = 0.3  # share of texts that a person wrote before
_LINK = re.compile(r"https?://|www\.|\b[\w-]+\.(?:com|org|net|io|ru|me)\b", re.IGNORECASE)
_PRIVATE = re.compile(r"[\w.+-]+@[\w-]+\.\w+|\+?\d[\d\s().-]{7,}\d")
_HANDLE = re.compile(r"(?<!\w)@[\w.-]+")
_QUOTED = re.compile(r"[“\"]([^“”\"]+)[”\"]")
_VERB = "said|replied|asked|cried|answered|exclaimed|returned|continued|observed|added|remarked|murmured|whispered"
_NAME = r"(?:(?:Mr|Mrs|Miss|Dr|Sir|Lady|Captain|Colonel)\.? )?[A-Z][a-z]+(?: [A-Z][a-z]+)?"
_SPEAKER = re.compile(rf"[”\"]\s*(?:(?:{_VERB}) ({_NAME})|({_NAME}) (?:{_VERB}))\b|^({_NAME}) (?:{_VERB})[^“\"]*[“\"]")
_PRONOUNS = frozenset({"He", "She", "It", "They", "We", "You", "The", "And", "But", "Then", "There", "This", "That"})


class Said(NamedTuple):
    """One text of a person; `occasion` is what it replies to, "" if that is unknown."""

    text: str
    occasion: str


@dataclass(frozen=True)
class Person:
    """Somebody with a history.

    Attributes:
        group: the user, or "NOVEL:CHARACTER".
        dimension: TwinVoice's: "1" social, "2" interpersonal, "3" narrative.
        said: in order of time.
    """

    group: str
    dimension: str
    speaker: str
    said: tuple[Said, ...]


def read(path: Path, left_out: Counter[str]) -> Iterator[Person]:
    """The people of a file."""
    if path.suffix == ".txt":
        found = _novel(path, left_out)
    else:
        found = _posts(path, left_out)
    for (name, dimension, speaker), said in found.items():
        if reason := _no_person(name, said):
            left_out[f"people: {reason}"] += 1
        else:
            group = name if dimension == "3" else f"user-{hashlib.sha256(name.encode()).hexdigest()[:16]}"
            yield Person(group, dimension, speaker, tuple(said))


def _no_person(name: str, said: Sequence[Said]) -> str:
    """Return why nothing of this person is used; "" if it is."""
    texts = [" ".join(words(one.text)) for one in said]
    if "bot" in re.split(r"[\W_]+", name.casefold()) or len(set(texts)) < (1 - REPEATED) * len(texts):
        return "a bot, or somebody who repeats texts"
    return "" if _share_of_function_words(texts) >= ENGLISH else "not English"


def is_english(text: str) -> bool:
    """Return True if one text may be English: a short one has fewer function words than a person's texts together."""
    return _share_of_function_words([" ".join(words(text))]) >= ENGLISH / 2


def _share_of_function_words(texts: Sequence[str]) -> float:
    spoken = [word for text in texts for word in text.split()]
    return sum(word in FUNCTION_WORDS for word in spoken) / max(len(spoken), 1)


def _clean(text: str, left_out: Counter[str]) -> str:
    """The text as it may be used; "" if it may not."""
    reasons = {
        "texts: an address or a telephone number": _PRIVATE.search(text),
        "texts: a link": _LINK.search(text),
        "texts: too short or too long": not SHORTEST <= len(words(text)) <= LONGEST,
    }
    reason = next((name for name, applies in reasons.items() if applies), None)
    if reason:
        left_out[reason] += 1
        return ""
    return " ".join(_HANDLE.sub("@user", text).split())


Key = tuple[str, str, str]


def _posts(path: Path, left_out: Counter[str]) -> dict[Key, list[Said]]:
    texts: dict[str, str] = {}  # id -> text, of everything that a reply may refer to
    posts: list[tuple[str, Key, str, str, str]] = []  # date, person, id, parent, text
    for where, raw in read_json_lines(path):
        post = _bluesky(raw) if "text" in raw else _telegram(raw) if "message" in raw else None
        if post is None:
            raise ValueError(
                f"{where}: fields {sorted(raw)[:8]} are neither those of a Bluesky post (text) nor of a Telegram "
                "message (message)"
            )
        date, key, number, parent, text = post
        if not key[0]:
            left_out["texts: of nobody, such as a channel's own messages"] += 1
        elif text := _clean(text, left_out):
            texts[number] = text
            posts.append((date, key, number, parent, text))
    found: defaultdict[Key, list[Said]] = defaultdict(list)
    own = {number: key for _, key, number, _, _ in posts}
    for _, key, _, parent, text in sorted(posts, key=lambda one: one[0]):
        to_others = parent if own.get(parent) != key else ""  # a thread of one person is no conversation
        found[key].append(Said(text, texts.get(to_others, "")))
    return found


def _bluesky(raw: Mapping[str, Any]) -> tuple[str, Key, str, str, str]:
    author = raw.get("author") or raw.get("did") or ""
    name = str(author.get("did") or author.get("handle") if isinstance(author, Mapping) else author)
    reply = raw.get("reply_to") or raw.get("reply_parent") or ((raw.get("reply") or {}).get("parent") or {}).get("uri")
    date = str(raw.get("created_at") or raw.get("createdAt") or "")
    return date, (name, "1", ""), str(raw.get("uri") or ""), str(reply or ""), str(raw["text"] or "")


def _telegram(raw: Mapping[str, Any]) -> tuple[str, Key, str, str, str]:
    chat = _peer(raw.get("to_id") or raw.get("peer_id"))
    reply = raw.get("reply_to_msg_id") or (raw.get("reply_to") or {}).get("reply_to_msg_id")
    user = _peer(raw.get("from_id"))
    date = str(raw.get("date") or "")
    key = (f"telegram-{user}" if user else "", "2", "")
    return date, key, f"{chat}/{raw.get('id')}", f"{chat}/{reply}" if reply else "", str(raw["message"] or "")


def _peer(value: Any) -> str:
    """The number of a user or chat: 5, or {"_": "PeerUser", "user_id": 5}."""
    if isinstance(value, Mapping):
        value = next((value[name] for name in ("user_id", "channel_id", "chat_id") if value.get(name)), "")
    return str(value or "")


def _novel(path: Path, left_out: Counter[str]) -> dict[Key, list[Said]]:
    text = read_text(path)
    titled = re.search(r"^Title:\s*(.+)$", text, re.MULTILINE)
    title = titled[1].strip() if titled else path.stem
    body = re.split(r"\*\*\* ?(?:START|END) OF TH[^\n]*\*\*\*", text)
    paragraphs = [" ".join(part.split()) for part in re.split(r"\n\s*\n", body[1] if len(body) > 1 else text)]
    found: defaultdict[Key, list[Said]] = defaultdict(list)
    before: list[str] = []
    for paragraph in filter(None, paragraphs):
        named = _SPEAKER.search(paragraph)
        name = next((group for group in named.groups() if group), "") if named else ""
        said = " ".join(part.strip() for part in _QUOTED.findall(paragraph))
        if name and name.split()[0] not in _PRONOUNS and (said := _clean(said, left_out)):
            occasion = " ".join(before[-2:])
            occasion = occasion if SHORTEST <= len(words(occasion)) <= 3 * LONGEST else ""
            found[f"{title}:{name}", "3", name].append(Said(said, occasion))
        before = [*before[-1:], paragraph]
    return found
