"""Check the messages and the tools of a row, as files of many writers hold them.

Writers differ in small ways: JSON text instead of lists, lists of text parts, fields that are null because parquet
gives every message of a column the same fields. What can mean only one thing is read; anything else is an error.
"""

import json
from collections.abc import Mapping
from typing import Any

from soul.errors import SoulError

KNOWN_ROLES = ("system", "developer", "user", "assistant", "tool")

Turn = dict[str, Any]  # role, content, `train` if the file marks the turn, and whatever else the chat template reads


class BadConversation(SoulError):
    """A row holds no conversation to train on; the message names file, row and turn."""


def read_turns(value: Any, where: str) -> list[Turn]:
    """The messages of a field, at least one; `where` is file, row and field, for errors."""
    value = parsed(value, where, "messages")
    if not isinstance(value, list) or not value:
        shown = "an empty list" if value == [] else type(value).__name__
        raise BadConversation(
            f"{where}: expected a list of messages with role and content, got {shown}. Fix or drop the row, or set "
            "data.bad_rows=drop."
        )
    return [_turn(turn, f"{where}, turn {number}") for number, turn in enumerate(value)]


def read_tools(value: Any, where: str) -> list[dict[str, Any]] | None:
    """The tools of a row as the chat template wants them: a list of JSON schemas; None if there are none."""
    tools = parsed(value, f"{where}, field tools", "tools") if value else None
    if not tools:
        return None
    if not isinstance(tools, list) or not all(isinstance(tool, dict) for tool in tools):
        raise BadConversation(f"{where}, field tools: expected a list of JSON schemas. Fix the row.")
    return [without_nulls(tool) for tool in tools]


def without_nulls(value: Any) -> Any:
    """A value without the null fields of its structs: parquet gives all structs of a column the same fields."""
    if isinstance(value, dict):
        return {key: without_nulls(part) for key, part in value.items() if part is not None}
    return [without_nulls(part) for part in value] if isinstance(value, list) else value


def text_field(record: Mapping[str, Any], name: str, where: str) -> str:
    """The text of a field; "" if the row has none."""
    value = record.get(name) or ""
    if not isinstance(value, str):
        raise BadConversation(f"{where}, field {name}: expected text, got {type(value).__name__}. Fix the row.")
    return value


def parsed(value: Any, where: str, what: str) -> Any:
    """A list, which some writers store as JSON text."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except ValueError as error:
        raise BadConversation(f"{where}: a text that is not a JSON list of {what} ({error}). Fix the row.") from error


def _turn(value: Any, where: str) -> Turn:
    if not isinstance(value, dict) or value.get("role") not in KNOWN_ROLES:
        shown = value.get("role") if isinstance(value, dict) else type(value).__name__
        raise BadConversation(f"{where}: the role {shown!r} is not one of {', '.join(KNOWN_ROLES)}. Fix the row.")
    content = value.get("content")
    if isinstance(content, list):  # a list of parts, as in files for vision models
        if not all(isinstance(part, dict) and isinstance(part.get("text"), str) for part in content):
            raise BadConversation(f"{where}, field content: a part is not text. This training run supports text only.")
        content = "".join(part["text"] for part in content)
    if content is not None and not isinstance(content, str):
        raise BadConversation(f"{where}, field content: expected text, got {type(content).__name__}. Fix the row.")
    turn = {key: without_nulls(extra) for key, extra in value.items() if extra is not None}
    marks = [_mark(turn.pop(name), f"{where}, field {name}") for name in ("weight", "train") if name in turn]
    return turn | {"content": content or ""} | ({"train": all(marks)} if marks else {})


def _mark(value: Any, where: str) -> bool:
    if value not in (0, 1):  # True and False are equal to them
        raise BadConversation(
            f"{where}: {value!r} is neither 0 nor 1. A turn is trained or not; other weights are not supported."
        )
    return bool(value)
