"""A chat message, the type that judges, policies and tasks share."""

from typing_extensions import TypedDict  # pydantic reads this one on Python 3.11 too


class Message(TypedDict):
    """One chat message; `role` is system, user or assistant."""

    role: str
    content: str
