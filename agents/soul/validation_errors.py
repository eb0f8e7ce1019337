"""The first problem of a pydantic ValidationError and its place, for error messages of one paragraph."""

from collections.abc import Iterable
from typing import Any, NamedTuple

from pydantic import ValidationError


class Problem(NamedTuple):
    """The first problem of a ValidationError.

    Attributes:
        place: the path to the value: names of fields and places in lists.
        message: what is wrong, in words that follow the field's name.
        value: what was given; if a field is missing, the object that lacks it.
        kind: pydantic's name of the problem, such as "missing" or "extra_forbidden".
    """

    place: tuple[int | str, ...]
    message: str
    value: Any
    kind: str

    @property
    def field(self) -> str:
        """The path with dots; "" for the object as a whole."""
        return ".".join(map(str, self.place))


def first_problem(error: ValidationError) -> Problem:
    """The first problem that pydantic names."""
    first = error.errors(include_url=False)[0]
    message = "is missing" if first["type"] == "missing" else first["msg"].removeprefix("Value error, ")
    return Problem(first["loc"], message, first["input"], first["type"])


def setting_problem(error: ValidationError, section: str = "", known: Iterable[str] = ()) -> str:
    """The first problem of a section of settings: `data.seed='x': Input should be a valid integer.`

    It repeats the value, so it is not for a section that may hold a key.

    Args:
        known: keys of the section, to be listed where a key is unknown.
    """
    problem = first_problem(error)
    key = ".".join(part for part in (section, problem.field) if part)
    if problem.kind == "missing":
        return f"{key}: {problem.message}."
    hint = f" Known keys of {section}: {', '.join(known)}." if problem.kind == "extra_forbidden" and known else ""
    return f"{key}={problem.value!r}: {problem.message}.{hint}"
