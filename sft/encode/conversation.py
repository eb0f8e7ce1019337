"""A record of a shard as a conversation: messages in the model's own roles, and which of them are trained.

Layouts:

    messages, extra_info.messages    a list of role and content. A rule for the source (train_roles.py) names the
                                     trained side, and for long conversations how many of the last turns stay turns
    prompt with response             the prompt is a text or a list of messages; only the response is trained
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from sft.encode.train_roles import ROLES, RoleRules
from soul.errors import SoulError

UNNAMED = "unnamed"  # the source of rows without a data_source
SWAPPED = {"user": "assistant", "assistant": "user"}
KNOWN_ROLES = ("system", "developer", "user", "assistant", "tool")

Layout = Literal["messages", "extra_info.messages", "prompt_response"]
Turn = dict[str, Any]  # role, content and whatever else the chat template reads


class BadConversation(SoulError):
    """A row holds no conversation to train on; the message names file, row and turn."""


@dataclass(frozen=True)
class Conversation:
    """One row.

    Attributes:
        source: its data_source.
        messages: the turns for the chat template, with the trained side as the assistant.
        trained: numbers of the trained turns, ascending.
        role: the side of the trained turns, or "response".
    """

    source: str
    messages: list[Turn]
    trained: tuple[int, ...]
    role: str


def read_conversation(record: Mapping[str, Any], layout: Layout, rules: RoleRules, where: str) -> Conversation:
    """The conversation of a row of the shards; `where` is file and row, for errors.

    Raises:
        BadConversation: the value is not a list of turns, a role is unknown, or a trained turn is empty.
    """
    source = record.get("data_source") or UNNAMED
    if layout == "prompt_response":
        messages = _prompt(record, where)
        trained: tuple[int, ...] = (len(messages) - 1,)
        role = "response"
    else:
        role = record.get("train_role") or rules.role(source)
        if role not in ROLES:
            raise BadConversation(f"{where}, field train_role: {role!r} is not one of {', '.join(ROLES)}.")
        holder = record if layout == "messages" else record.get("extra_info") or {}
        messages = _turns(holder.get("messages"), f"{where}, field {layout}")
        if role == "human":
            messages = [turn | {"role": SWAPPED.get(turn["role"], turn["role"])} for turn in messages]
        messages = _fold_earlier_turns(messages, rules.last_turns(source))
        trained = tuple(number for number, turn in enumerate(messages) if turn["role"] == "assistant")
    for number in trained:
        if not messages[number]["content"].strip() and not messages[number].get("tool_calls"):
            side = "the human's side, which is trained here" if role == "human" else role
            raise BadConversation(
                f"{where}, turn {number} ({side}): the turn is empty: there is nothing to train. Fix or drop the row, "
                "or set data.bad_rows=drop."
            )
    return Conversation(source, messages, trained, role)


def _fold_earlier_turns(messages: list[Turn], last: int) -> list[Turn]:
    """Keep only the `last` turns as turns (0: all); write the earlier ones into one text of the user before them."""
    start = next((n for n, turn in enumerate(messages) if turn["role"] not in ("system", "developer")), len(messages))
    first = max(start, len(messages) - last) if last else start
    if first == start:
        return messages
    names = {"assistant": "You", "user": "Other", "tool": "Tool"}
    earlier = "\n".join(f"{names.get(turn['role'], 'System')}: {turn['content']}" for turn in messages[start:first])
    head, turns = messages[:start], messages[first:]
    if turns[0]["role"] == "user":
        return [*head, turns[0] | {"content": f"{earlier}\nOther: {turns[0]['content']}"}, *turns[1:]]
    return [*head, {"role": "user", "content": earlier}, *turns]


def _prompt(record: Mapping[str, Any], where: str) -> list[Turn]:
    prompt, response = record.get("prompt"), record.get("response")
    if not isinstance(response, str):
        raise BadConversation(f"{where}, field response: expected text, got {type(response).__name__}. Fix the row.")
    if isinstance(prompt, str):
        turns: list[Turn] = [{"role": "user", "content": prompt}]
    else:
        turns = _turns(prompt, f"{where}, field prompt")
    return [*turns, {"role": "assistant", "content": response}]


def _turns(value: Any, where: str) -> list[Turn]:
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError as error:
            raise BadConversation(
                f"{where}: a text that is not a JSON list of messages ({error}). Fix the row."
            ) from error
    if not isinstance(value, list) or not value:
        shown = "an empty list" if value == [] else type(value).__name__
        raise BadConversation(
            f"{where}: expected a list of messages with role and content, got {shown}. Fix or drop the row, or set "
            "data.bad_rows=drop."
        )
    return [_turn(turn, f"{where}, turn {number}") for number, turn in enumerate(value)]


def _turn(value: Any, where: str) -> Turn:
    if not isinstance(value, dict) or value.get("role") not in KNOWN_ROLES:
        shown = value.get("role") if isinstance(value, dict) else type(value).__name__
        raise BadConversation(f"{where}: the role {shown!r} is not one of {', '.join(KNOWN_ROLES)}. Fix the row.")
    content = value.get("content")
    if isinstance(content, list):  # a list of parts, as in files for vision models
        if not all(isinstance(part, dict) and isinstance(part.get("text"), str) for part in content):
            raise BadConversation(f"{where}, field content: a part is not text. This training supports text only.")
        content = "".join(part["text"] for part in content)
    if content is not None and not isinstance(content, str):
        raise BadConversation(f"{where}, field content: expected text, got {type(content).__name__}. Fix the row.")
    extras = {key: extra for key, extra in value.items() if extra is not None}  # parquet fills absent fields with null
    return extras | {"content": content or ""}
