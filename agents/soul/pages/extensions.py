"""The parts of the API for comparisons, playground, annotation and reviews of data (`soul.pages.api.Extension`).

    compare/ID,ID[/within]                      all numbers, as `soul compare --json` prints them
    compare/ID,ID[/within]/rows/K/SET           the rows of a set in the K-th comparison
    compare/ID,ID[/within]/texts/K/SET/ROW      both texts of a row
    play/about, play/rows/TASK?text=T&first=N, play/state/SESSION; POST play/start, say, refine, keep
    annotate/about?person=P                     progress, and the next item of a person; POST annotate/label
    annotate/item/N?person=P                    an item again, with the person's label
    annotate/agreement                          the numbers of `soul judge agree --json`
    review/about, review/rows/FILE?reason=R&text=T&first=N; POST review/mark

Each takes the object that does the work, which is made elsewhere: `soul.compare`, `soul.playground`, `soul.annotate`,
`soul.rows.review`. None of these is imported here, so they may import the pages.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from soul.pages.api import BadRequest, NotThere, Query, number_in
from soul.pages.catalogue import Catalogue

KEPT = 4  # comparisons, because the rows behind them are asked for next


class Comparisons:
    """Comparisons of runs of the catalogue."""

    def __init__(self, catalogue: Catalogue) -> None:
        self.catalogue = catalogue
        self._tables: dict[tuple[Any, ...], Any] = {}

    def get(self, parts: Sequence[str], query: Query) -> Any:
        """The answer to an address."""
        runs: Any = importlib.import_module("soul.compare.runs")
        ids, *rest = parts or [""]
        within = rest[:1] == ["within"]
        table = self._table(runs, ids.split(","), within)
        try:
            match rest[within:]:
                case []:
                    return table.to_json()
                case ["rows", place, name]:
                    return runs.rows_of(table.comparisons[number_in({"place": place}, "place") or 0], name)
                case ["texts", place, name, row]:
                    return runs.pair_texts(table.comparisons[number_in({"place": place}, "place") or 0], name, row)
        except LookupError:  # no such comparison, set or row
            pass
        raise NotThere

    def _table(self, runs: Any, ids: Sequence[str], within: bool) -> Any:
        found = [view for one in ids if (view := self.catalogue.view(one))]
        if len(found) < len(ids):
            raise NotThere
        key = (*ids, within, *(view.overview(None)["revision"] for view in found))
        if key not in self._tables:
            views: dict[Path, Any] = {view.folder: view for view in found}

            def groups_of(folder: Path) -> Any:
                """Read the groups of a training run from its index, which takes much less time than its traces."""
                return views[folder].ask(importlib.import_module("soul.compare.trainings").means_from_index)

            self._tables[key] = runs.compare_runs(list(views), within=within, groups_of=groups_of)
            for old in list(self._tables)[:-KEPT]:
                del self._tables[old]
        return self._tables[key]


Gets = Mapping[tuple[str, int], Callable[..., Any]]


@dataclass(frozen=True)
class Routes:
    """An extension made of functions.

    Attributes:
        gets: an address and the number of further parts -> function of the query and those parts.
        posts: an address -> function of values of the request's body, and their names.
    """

    gets: Gets
    posts: Mapping[str, tuple[Callable[..., Any], str]]

    def get(self, parts: Sequence[str], query: Query) -> Any:
        """The answer to an address."""
        name, *rest = parts or [""]
        if (answer := self.gets.get((name, len(rest)))) is None:
            raise NotThere
        return answer(query, *rest)

    def post(self, parts: Sequence[str], body: Mapping[str, Any]) -> Any:
        """Carry out a request; raises BadRequest if its body lacks a value."""
        if len(parts) != 1 or parts[0] not in self.posts:
            raise NotThere
        work, names = self.posts[parts[0]]
        if missing := [name for name in names.split() if name not in body]:
            raise BadRequest(f"{missing[0]}: the request has no such value")
        return work(*(body[name] for name in names.split())) or {}


def play(ground: Any) -> Routes:
    """A playground: `soul view --play`."""
    gets: Gets = {
        ("about", 0): lambda query: ground.about(),
        ("rows", 1): lambda query, task: ground.rows(task, query.get("text", ""), number_in(query, "first") or 0),
        ("state", 1): lambda query, session: ground.state(session),
    }
    posts = {"start": (ground.start, "task row player"), "say": (ground.say, "session text")}
    return Routes(gets, {**posts, "refine": (ground.refine, "session"), "keep": (ground.keep, "session as")})


def annotate(annotation: Any) -> Routes:
    """An annotation: `soul view --annotate FOLDER`."""

    def about(query: Query) -> dict[str, Any]:
        person = query.get("person")
        return {**annotation.progress(), "next": annotation.next(person) if person else None}

    def item(query: Query, number: str) -> Any:
        return annotation.shown(query.get("person", ""), number_in({"item": number}, "item") or 0)

    gets: Gets = {("about", 0): about, ("item", 1): item, ("agreement", 0): lambda query: annotation.agreement()}
    return Routes(gets, {"label": (annotation.label, "person item value")})


def review(data: Any) -> Routes:
    """The training files of a folder and what was left out of them: `soul view --review FOLDER`."""

    def rows(query: Query, file: str) -> Any:
        return data.rows(file, query.get("reason", ""), query.get("text", ""), number_in(query, "first") or 0)

    gets: Gets = {("about", 0): lambda query: {"folder": str(data.folder), "files": data.about()}, ("rows", 1): rows}
    return Routes(gets, {"mark": (data.mark, "file row mark")})
