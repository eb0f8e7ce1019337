"""The addresses that the page asks for, and their answers: the same for a server and for an exported file.

    folders                                  what there is to look at (catalogue.py)
    run/ID/overview?from=REV                 numbers of a run; "unchanged" if REV is still its revision
    run/ID/index?after=N&revision=R          sessions after row N; all, if some have gone since R
    run/ID/session/N                         one session's record
    run/ID/themes, run/ID/judge              of a training run: themes of its critiques, rewards by judge and length
    run/ID/search?text=T&after=N             sessions after N with this text, as far as half a second takes

An address that begins with the name of an extension goes to it: `compare/...`, `play/...` (extensions.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from soul.errors import SoulError
from soul.pages.catalogue import Catalogue, RunView

Query = Mapping[str, str]


class NotThere(Exception):
    """There is nothing at an address."""


class BadRequest(SoulError):
    """A parameter of an address is missing or no number."""


class Extension(Protocol):
    """A further part of the API, below its own name. One that changes something has `post(parts, body)` too."""

    def get(self, parts: Sequence[str], query: Query) -> Any:
        """The answer to an address; raises NotThere."""


class Api:
    """Answers of one catalogue. Its methods may be called from several threads.

    Args:
        extensions: name -> the part of the API below that name.
    """

    def __init__(self, catalogue: Catalogue, extensions: Mapping[str, Extension] | None = None) -> None:
        self.catalogue, self.extensions = catalogue, extensions or {}
        self.writes = any(hasattr(one, "post") for one in self.extensions.values())

    def get(self, parts: Sequence[str], query: Query) -> Any:
        """The answer to an address, as a value for JSON.

        Raises:
            NotThere: there is nothing at this address. BadRequest: a parameter is wrong. SoulError: a run's folder is
            damaged. NoSession: the session is not there any more.
        """
        match parts:
            case ["folders"]:
                return self.catalogue.folders()
            case ["run", number, *rest] if view := self.catalogue.view(number):
                return _of_run(view, rest, query)
            case [name, *rest] if name in self.extensions:
                return self.extensions[name].get(rest, query)
        raise NotThere

    def post(self, parts: Sequence[str], body: Mapping[str, Any]) -> Any:
        """Carry out a request; raises as `get`."""
        match parts:
            case [name, *rest] if post := getattr(self.extensions.get(name), "post", None):
                return post(rest, body)
        raise NotThere


def _of_run(view: RunView, parts: Sequence[str], query: Query) -> Any:
    match parts:
        case ["overview"]:
            return view.overview(number_in(query, "from"))
        case ["index"]:
            return view.columns(number_in(query, "after") or 0, number_in(query, "revision"))
        case ["session", number]:
            return view.session(number_in({"session": number}, "session") or 0)
        case ["search"] if text := query.get("text"):
            return view.search(text, number_in(query, "after") or 0)
        case ["search"]:
            raise BadRequest("text: pass what to search for")
        case [name] if name in view.parts:
            return view.parts[name]()
    raise NotThere


def number_in(query: Query, name: str) -> int | None:
    """A parameter that is a whole number, 0 or more; None without it. Raises BadRequest if it is something else."""
    text = query.get(name) or ""
    if text and not (text.isascii() and text.isdigit() and len(text) < 16):
        raise BadRequest(f"{name}={text}: expected a whole number, 0 or more")
    return int(text) if text else None
