"""A chat message, the type that judges, policies and tasks share."""

from collections.abc import Callable

from typing_extensions import TypedDict  # pydantic reads this one on Python 3.11 too


class Message(TypedDict):
    """One chat message; `role` is system, user or assistant."""

    role: str
    content: str


Escape = Callable[[list[Message]], list[Message]]  # takes the control tokens of a model out of the texts that it reads
