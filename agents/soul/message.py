"""A chat message, the type that judges, policies and tasks share."""

from typing import TypedDict


class Message(TypedDict):
    """One chat message; `role` is system, user or assistant."""

    role: str
    content: str
