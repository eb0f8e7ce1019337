"""What public records write in several ways: options with letters or without, gold letters, objects or chats for texts.

For the rows of one-turn tasks. Nothing is ever evaluated; what cannot be read raises a ValueError that says why.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator

from soul.one_turn import literal

# Characters that print nothing: an answer of one of these alone is no answer, and `str.strip` leaves them.
_UNSEEN = re.compile("[\u200b-\u200f\u2060-\u2064\ufeff\u00ad]")
_OWN_LETTER = re.compile(r"\s*[(\[]?([A-Za-z])(?:[)\]][.:]?|[.:、．：])\s*(?=\S)")
_GOLD = re.compile(r"[(\[]?([A-Za-z])[)\]]?[.:]?")


def parse_literal(value: Any) -> Any:
    """A list or an object that arrives as JSON, as a Python literal or as an array; anything else passes as it is."""
    if isinstance(value, str):
        return literal(value)
    return value.tolist() if hasattr(value, "tolist") else value


def clean_text(value: Any) -> str:
    """A text without blanks and unseen characters around it; "" for a null and for the NaN of tables."""
    if value is None or value != value:  # only NaN differs from itself
        return ""
    text = str(value).strip()
    bare = _UNSEEN.sub("", text).strip()
    return text if bare and bare.lower() != "nan" else ""


# A word by which a record says what it belongs to. Rows do without it: what is no text is no mistake.
Label = Annotated[str, BeforeValidator(lambda value: clean_text(value) if isinstance(value, str | int) else "")]


def options_by_letter(texts: Iterable[str]) -> dict[str, str]:
    """Letter -> text, from A on."""
    return {chr(ord("A") + number): text for number, text in enumerate(texts)}


def option_texts(value: Any) -> list[str]:
    """The options of a record, in order, without letters of their own.

    Args:
        value: a list, an object (letter -> text), or either of them as a string. Absent options at the end (a question
            with two options in a table with four columns) are dropped.

    Raises:
        ValueError: it is neither, fewer than two options are left, or one in the middle is blank.
    """
    value = parse_literal(value)
    if isinstance(value, Mapping):
        given = {clean_text(key).upper(): text for key, text in value.items() if clean_text(text)}
        letters = sorted(given)
        if letters != list(options_by_letter(letters)):
            raise ValueError(f"the options are named {letters}, not A, B, C and so on")
        value = [given[letter] for letter in letters]
    if not isinstance(value, list | tuple):
        raise ValueError(f"is no list of options, but {type(value).__name__}")
    texts = [clean_text(text) for text in value]
    while texts and not texts[-1]:
        texts.pop()
    if len(texts) < 2 or not all(texts):
        raise ValueError(f"expected two options at least and none of them blank, got {texts}")
    return strip_option_letters(texts)


def strip_option_letters(texts: list[str]) -> list[str]:
    """The options without the letters that they carry themselves ("A. x", "B.y"), where all carry their own.

    The blank after the letter goes with it: one source writes it before the right option only.
    """
    marks = [_OWN_LETTER.match(text) for text in texts]
    if [mark.group(1).upper() if mark else "" for mark in marks] != list(options_by_letter(texts)):
        return texts
    return [text[mark.end() :] for text, mark in zip(texts, marks, strict=True) if mark]


def gold_letter(value: Any, options: Mapping[str, str]) -> str:
    """The letter of the right option, given as a letter ("B", "(b)", "B. ") or as the option's text.

    Raises:
        ValueError: it is no option.
    """
    text = clean_text(value)
    letter = _GOLD.fullmatch(text)
    if letter and letter.group(1).upper() in options:
        return letter.group(1).upper()
    own = _OWN_LETTER.match(text)
    for candidate in (text, text[own.end() :] if own else text):
        matches = [key for key, option in options.items() if option.casefold() == candidate.casefold()]
        if matches:
            return matches[0]
    raise ValueError(f"{text!r} is not among the options {dict(options)}")


def drop_empty_groups(groups: Mapping[str, str]) -> dict[str, str]:
    """Of what a row may belong to (`Task.groups`) that which its record tells; the rest is blank."""
    return {kind: " ".join(value.split()) for kind, value in groups.items() if value.strip()}


def option_references(nouns: Iterable[str], letters: Iterable[str]) -> tuple[str, ...]:
    """ "reply A", "reply B" and so on: what feedback must not say where a prompt calls its options so."""
    return tuple(f"{noun} {letter}" for noun in nouns for letter in letters)


def to_prose(value: Any, between: str = "\n") -> str:
    """A text, or an object or a list in words: "Age: 31", one entry a line."""
    value = _unpacked(value)
    if isinstance(value, Mapping):
        entries = {key: to_prose(entry, "; ") for key, entry in value.items()}
        return between.join(f"{key}: {entry}" for key, entry in entries.items() if entry)
    if isinstance(value, list | tuple):
        return ", ".join(entry for entry in (to_prose(entry, "; ") for entry in value) if entry)
    return clean_text(value)


def _unpacked(value: Any) -> Any:
    """What a string holds where it is an object or a list; a text that only starts with a bracket stays a text."""
    if isinstance(value, str) and value.lstrip()[:1] not in ("{", "["):
        return value
    try:
        return parse_literal(value)
    except ValueError:
        return value


def user_text(record: Mapping[str, Any]) -> str:
    """What a record asks the policy: `prompt_text`, else the first of `conversations`, else `prompt`; "" if none."""
    found = (_asked(record.get(key)) for key in ("prompt_text", "conversations", "prompt"))
    return next((text for text in found if text), "")


def _asked(value: Any) -> str:
    """The text of a chat before the assistant speaks; of several conversations the first one's."""
    chat = _unpacked(value)
    if isinstance(chat, Mapping):
        chat = chat["messages"] if chat.get("messages") is not None else [chat]
    elif isinstance(chat, list | tuple) and chat and isinstance(chat[0], Mapping) and "messages" in chat[0]:
        chat = chat[0]["messages"]
    said: list[str] = []
    for turn in chat if isinstance(chat, list | tuple) else ():
        if not isinstance(turn, Mapping) or turn.get("role", turn.get("from")) in ("assistant", "gpt", "model"):
            break
        said.append(_content(turn))
    text = "\n\n".join(text for text in said if text)
    return text or (clean_text(value) if isinstance(value, str) else "")


def _content(turn: Mapping[str, Any]) -> str:
    content = turn.get("content", turn.get("value"))
    if isinstance(content, list | tuple):  # parts, of which the texts count
        content = "\n".join(str(part["text"]) for part in content if isinstance(part, Mapping) and part.get("text"))
    return clean_text(content)
