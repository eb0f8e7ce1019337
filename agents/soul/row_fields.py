"""Parse fields that public data sets write in several ways: lists as strings, options with or without letters, chats.

Strings are never evaluated as code. A value that cannot be parsed raises a ValueError that says why.
"""

import ast
import json
import re
from collections.abc import Iterable, Mapping
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, model_validator

MARK = "[...]"  # stands for what a shortened text has lost

# Characters that print nothing and that `str.strip` leaves. A text that consists only of these is blank.
_UNSEEN = re.compile("[\u200b-\u200f\u2060-\u2064\ufeff\u00ad]")
_OWN_LETTER = re.compile(r"\s*[(\[]?([A-Za-z])(?:[)\]][.:]?|[.:、．：])\s*(?=\S)")
_GOLD = re.compile(r"[(\[]?([A-Za-z])[)\]]?[.:]?")


def parse_literal(value: Any) -> Any:
    """Parse a list or an object that is written as JSON, as a Python literal or as a numpy array.

    Other values are returned unchanged.

    Raises:
        ValueError: a string that is neither JSON nor a Python literal.
    """
    if not isinstance(value, str):
        return value.tolist() if hasattr(value, "tolist") else value
    for parse in (json.loads, ast.literal_eval):
        try:
            return parse(value)
        except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
            continue  # try the other notation
    raise ValueError("is neither a list nor a JSON or Python list literal")


def as_list(value: Any) -> Any:
    """Parse a list that may be written as JSON or as a Python literal. Other values are left to pydantic.

    Raises:
        ValueError: a string that is neither, or an object, whose keys are hardly the intended list.
    """
    value = parse_literal(value) if isinstance(value, str) else value
    if isinstance(value, Mapping):
        raise ValueError("is an object, not a list")
    return list(value) if hasattr(value, "__iter__") and not isinstance(value, str) else value


def without_nulls(value: Any) -> Any:
    """An object without its nulls, which count as absent keys. Other values are returned unchanged."""
    return {key: item for key, item in value.items() if item is not None} if isinstance(value, Mapping) else value


def nested_object(record: Mapping[str, Any], name: str) -> dict[str, Any]:
    """The object in a field of a record, without its nulls, also if it is written as JSON; {} for an absent field.

    Raises:
        ValueError: the field holds something else.
    """
    try:
        value = parse_literal(record[name]) if record.get(name) is not None else {}
    except ValueError:
        value = None
    if not isinstance(value, Mapping):
        raise ValueError(f"{name}: is not a JSON object")
    return dict(without_nulls(value))


class RecordPart(BaseModel):
    """An object inside a record. As in the record itself (`Row`), an absent key and a null are the same."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _drop_nulls(cls, value: Any) -> Any:
        return without_nulls(value)


def clean_text(value: Any) -> str:
    """The text without surrounding white space; "" for null, NaN and a text of invisible characters only."""
    if value is None or value != value:  # only NaN differs from itself
        return ""
    text = str(value).strip()
    bare = _UNSEEN.sub("", text).strip()
    return text if bare and bare.lower() != "nan" else ""


# A label that says what group a record belongs to. It is optional, so a value of another type counts as missing.
Label = Annotated[str, BeforeValidator(lambda value: clean_text(value) if isinstance(value, str | int) else "")]


def options_by_letter(texts: Iterable[str]) -> dict[str, str]:
    """Give the options letters from A on: letter -> text."""
    return {chr(ord("A") + number): text for number, text in enumerate(texts)}


def listed_texts(value: Any) -> list[str]:
    """The texts of a record's options, in order; none for an absent value.

    Args:
        value: a list of texts, a list of objects ({label, text}), an object of lists ({label, text}), an object
            (letter -> text), or a string with any of them.

    Raises:
        ValueError: it is none of these, or its letters are not A, B, C and so on.
    """
    if value is None or isinstance(value, str):
        value = parse_literal(value) if value and value.strip() else []
    if isinstance(value, Mapping) and "text" in value:
        value = _labelled(value.get("label"), value["text"])
    elif not isinstance(value, Mapping | str) and hasattr(value, "__iter__"):
        value = list(value)
        if value and all(isinstance(item, Mapping) and "text" in item for item in value):
            value = _labelled([item.get("label") for item in value], [item["text"] for item in value])
    if isinstance(value, Mapping):
        by_letter = {clean_text(key).upper(): text for key, text in value.items() if clean_text(text)}
        letters = sorted(by_letter)
        if letters != list(options_by_letter(letters)):
            raise ValueError(f"the options are named {letters}, not A, B, C and so on")
        value = [by_letter[letter] for letter in letters]
    if not isinstance(value, list):
        raise ValueError(f"expected a list of options, got {type(value).__name__}")
    if nested := [item for item in value if isinstance(item, Mapping | list | tuple)]:
        raise ValueError(f"expected texts or objects with a label and a text, got {str(nested[0])[:60]}")
    return [clean_text(text) for text in value]


def _labelled(labels: Any, texts: Any) -> Any:
    """The texts under their labels; in their order, if they have no labels."""
    texts = list(texts) if hasattr(texts, "__iter__") and not isinstance(texts, str) else texts
    names = list(labels) if hasattr(labels, "__iter__") and not isinstance(labels, str) else []
    if not any(map(clean_text, names)):
        return texts
    if not isinstance(texts, list) or len(names) != len(texts) or len(set(names)) != len(names):
        raise ValueError(f"{len(names)} labels {names} do not fit the texts {str(texts)[:60]}")
    return dict(zip(names, texts, strict=True))


def option_texts(value: Any) -> list[str]:
    """The texts of a record's options (`listed_texts`), without letters.

    Blank options at the end (a question with two options in a table with four columns) are dropped.

    Raises:
        ValueError: it holds no options, fewer than two remain, or one of them is blank.
    """
    texts = listed_texts(value)
    while texts and not texts[-1]:
        texts.pop()
    if len(texts) < 2 or not all(texts):
        raise ValueError(f"expected at least two options and none of them blank, got {texts}")
    return strip_option_letters(texts)


def strip_option_letters(texts: list[str]) -> list[str]:
    """The options without their letters ("A. x", "B.y"), if every option begins with the right letter.

    The space after the letter is removed too: in one source only the right option has it, which would give it away.
    """
    marks = [_OWN_LETTER.match(text) for text in texts]
    if [mark.group(1).upper() if mark else "" for mark in marks] != list(options_by_letter(texts)):
        return texts
    return [text[mark.end() :] for text, mark in zip(texts, marks, strict=True) if mark]


def gold_letter(value: Any, options: Mapping[str, str]) -> str:
    """The letter of the right option, which may be given as a letter ("B", "(b)", "B. ") or as the option's text.

    Raises:
        ValueError: it is not among the options.
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
    """The groups (`Task.groups`) that are not blank, with white space normalised."""
    return {kind: " ".join(value.split()) for kind, value in groups.items() if value.strip()}


def option_references(nouns: Iterable[str], letters: Iterable[str]) -> tuple[str, ...]:
    """Phrases that name an option ("reply A", "reply B"), which feedback must not contain."""
    return tuple(f"{noun} {letter}" for noun in nouns for letter in letters)


def to_prose(value: Any, between: str = "\n") -> str:
    """A text, or an object or list written out as text: "Age: 31", one entry per line."""
    value = _parse_if_structured(value)
    if isinstance(value, Mapping):
        entries = {key: to_prose(entry, "; ") for key, entry in value.items()}
        return between.join(f"{key}: {entry}" for key, entry in entries.items() if entry)
    if isinstance(value, list | tuple):
        return ", ".join(entry for entry in (to_prose(entry, "; ") for entry in value) if entry)
    return clean_text(value)


def _parse_if_structured(value: Any) -> Any:
    """The list or object that a string contains; a text that merely starts with a bracket stays a text."""
    if isinstance(value, str) and value.lstrip()[:1] not in ("{", "["):
        return value
    try:
        return parse_literal(value)
    except ValueError:
        return value


def entries_of(value: Any) -> list[Any]:
    """The entries of a list, also if it is written as JSON or a Python literal; any other value is the only entry."""
    listed = _parse_if_structured(value)
    is_list = hasattr(listed, "__iter__") and not isinstance(listed, str | Mapping)
    return list(listed) if is_list else [value]


def chat_turns(value: Any) -> list[tuple[str, str]] | None:
    """Roles and texts of a chat's turns, without blank ones; None if it is neither a list of messages nor its JSON."""
    chat = _parse_if_structured(value)
    if not hasattr(chat, "__iter__") or isinstance(chat, str | Mapping):
        return None
    turns = list(chat)
    if not all(isinstance(turn, Mapping) and isinstance(turn.get("content"), str) for turn in turns):
        return None
    return [(str(turn.get("role") or "").strip(), turn["content"].strip()) for turn in turns if turn["content"].strip()]


def user_text(record: Mapping[str, Any]) -> str:
    """The text that a record addresses to the policy; "" if there is none.

    It is `prompt_text`, else the first of `conversations`, else `prompt`.
    """
    texts = (_opening_text(record.get(key)) for key in ("prompt_text", "conversations", "prompt"))
    return next((text for text in texts if text), "")


def _opening_text(value: Any) -> str:
    """The text of a chat before the assistant's first turn; of several conversations, only the first is used."""
    chat = _parse_if_structured(value)
    if isinstance(chat, Mapping):
        chat = chat["messages"] if chat.get("messages") is not None else [chat]
    elif isinstance(chat, list | tuple) and chat and isinstance(chat[0], Mapping) and "messages" in chat[0]:
        chat = chat[0]["messages"]
    turns: list[str] = []
    for turn in chat if isinstance(chat, list | tuple) else ():
        if not isinstance(turn, Mapping) or turn.get("role", turn.get("from")) in ("assistant", "gpt", "model"):
            break
        turns.append(_content(turn))
    text = "\n\n".join(text for text in turns if text)
    return text or (clean_text(value) if isinstance(value, str) else "")


def _content(turn: Mapping[str, Any]) -> str:
    content = turn.get("content", turn.get("value"))
    if isinstance(content, list | tuple):  # a message in parts: keep the texts
        content = "\n".join(str(part["text"]) for part in content if isinstance(part, Mapping) and part.get("text"))
    return clean_text(content)


# Fields of a row that public data sets write in several ways.
CleanText = Annotated[str, BeforeValidator(clean_text)]
Options = Annotated[list[str], BeforeValidator(option_texts)]
Listed = BeforeValidator(as_list)  # of a list or tuple of any kind
LowerCase = BeforeValidator(lambda value: value.strip().lower() if isinstance(value, str) else value)  # of a literal
Prose = Annotated[str, BeforeValidator(lambda value: to_prose(value))]
