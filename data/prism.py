"""PRISM's conversations (github.com/HannahKirk/prism-alignment): the parts that UserLLM needs.

Two of its files are read: `conversations.jsonl`, and the table of opening prompts by cluster (`.csv` with `top_texts`),
which has no later turns. The files published beside the first (utterances, survey, metadata, models) are not needed.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from data.reading import read_csv

_TURN = {"turn", "role", "content"}
ADDS_NOTHING = frozenset({"utterances.jsonl", "survey.jsonl", "metadata.jsonl", "models.jsonl"})


@dataclass(frozen=True)
class Conversation:
    """One conversation, or only its opening.

    Attributes:
        key: PRISM's id, or a hash of the opening if the record has no id.
        user_turns: what the person wrote, turn by turn; at least the opening.
        reply: the reply to the opening that the person chose; "" if there is none.
        complete: whether `user_turns` holds all of the person's turns. If not, it is unknown which turn is the last.
        intent: the record's own; "" if it has none.
    """

    key: str
    user_id: str
    user_turns: tuple[str, ...]
    reply: str
    complete: bool
    intent: str

    @property
    def tested(self) -> tuple[str, ...]:
        """The messages that become rows: the opening, and the second turn of a conversation that has one."""
        return self.user_turns[: 2 if self.reply else 1]


def is_conversation(record: Mapping[str, Any]) -> bool:
    """Whether a JSON line is a record of conversations.jsonl."""
    return "conversation_history" in record


def read_conversation(where: str, raw: Mapping[str, Any]) -> Conversation:
    """One record of conversations.jsonl.

    Raises:
        ValueError: a field is missing or malformed; names place and field.
    """
    turns = raw["conversation_history"]
    if not (isinstance(turns, list) and all(isinstance(t, dict) and _TURN <= set(t) for t in turns)):
        raise ValueError(f"{where}: field 'conversation_history' must be a list of turns with turn, role and content")
    opening = min((t["turn"] for t in turns), default=0)
    users = {t["turn"] - opening: str(t["content"]).strip() for t in turns if t["role"] == "user"}
    # Several models reply to a turn. The participant chose one reply and went on from there.
    chosen = {
        t["turn"] - opening: str(t["content"]).strip() for t in turns if t["role"] == "model" and t.get("if_chosen")
    }
    if not users.get(0):
        raise ValueError(f"{where}: field 'conversation_history' does not begin with a turn of the user")
    return Conversation(
        key=str(raw.get("conversation_id") or key_of(users[0])),
        user_id=str(raw.get("user_id") or ""),
        user_turns=tuple(users[turn] for turn in sorted(users)),
        reply=chosen.get(0, "") if users.get(1) else "",
        complete=True,
        intent=str(raw.get("intent") or raw.get("intent_summary") or "").strip(),
    )


def read_openings(path: Path) -> Iterator[Conversation]:
    """The openings in the table by cluster.

    Raises:
        ValueError: a field is missing or malformed; names row and field.
    """
    for where, raw in read_csv(path):
        try:
            texts = ast.literal_eval(raw.get("top_texts") or "")
            valid = isinstance(texts, list) and all(isinstance(text, str) and text.strip() for text in texts)
        except (ValueError, SyntaxError):
            valid = False
        if not valid:
            raise ValueError(f"{where}: field 'top_texts' must be a Python list of texts")
        for text in texts:
            yield Conversation(key_of(text.strip()), "", (text.strip(),), "", False, "")


def key_of(opening: str) -> str:
    """The key of a conversation that has no id."""
    return f"opening-{hashlib.sha256(' '.join(opening.lower().split()).encode()).hexdigest()[:16]}"
