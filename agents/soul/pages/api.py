"""The addresses that the page asks for, and their answers: the same for a server and for an exported file.

    folders                                  what there is to look at (catalogue.py)
    run/ID/overview?known=REV                numbers of a run; "unchanged" if REV is still its revision
    run/ID/index?after=N&known=REV           sessions after row N; all, if some have gone since REV
    run/ID/session/N                         one session's record
    run/ID/themes                            themes of the critiques of a training run
    run/ID/judge                             rewards of a training run by judge and length
    run/ID/search?text=T&after=N             sessions after N with this text, as far as half a second takes

An address that begins with the name of an extension goes to it: `compare/...`, `play/...` (extensions.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pydantic import ValidationError, validate_call

from soul.errors import SoulError
from soul.pages.catalogue import Catalogue
from soul.validation_errors import first_problem

Query = Mapping[str, str]


class NotThere(Exception):
    """There is nothing at an address."""


class Api:
    """Answers of one catalogue. Its methods may be called from several threads.

    Args:
        extensions: name -> the part of the API below that name, with `get(parts, query)`; one that changes something
            has `post(parts, body)`, too.
    """

    def __init__(self, catalogue: Catalogue, extensions: Mapping[str, Any] | None = None) -> None:
        self.catalogue, self.extensions = catalogue, extensions or {}
        self.writes = any(hasattr(one, "post") for one in self.extensions.values())

    def get(self, parts: Sequence[str], query: Query) -> Any:
        """The answer to an address, as a value for JSON.

        Raises:
            NotThere: there is nothing at this address. NoSession: the session is not there any more. SoulError: a run's
            folder is damaged, or the request is wrong.
        """
        match parts:
            case ["folders"]:
                return self.catalogue.folders()
            case ["run", id_, *rest] if view := self.catalogue.view(id_):
                return called({**view.functions, **view.parts}, rest, query)
            case [name, *rest] if name in self.extensions:
                return self.extensions[name].get(rest, query)
        raise NotThere

    def post(self, parts: Sequence[str], body: Mapping[str, Any]) -> Any:
        """Carry out a request; raises as `get`."""
        post = getattr(self.extensions.get(parts[0]) if parts else None, "post", None)
        if post is None:
            raise NotThere
        return post(parts[1:], body)


def called(functions: Mapping[str, Callable[..., Any]], parts: Sequence[str], values: Mapping[str, Any]) -> Any:
    """Call the function of an address with the further parts and these values by name, once their types are checked.

    Raises:
        NotThere: there is none. SoulError: a value is missing, unknown or of another type.
    """
    name, *rest = parts or [""]
    if name not in functions:
        raise NotThere
    try:
        return validate_call(functions[name])(*rest, **values)
    except ValidationError as error:
        problem = first_problem(error)
        raise SoulError(f"{'/'.join(parts)}, {problem.field}: {problem.message}") from None
