"""The parts of the API for comparisons, playground, annotation and reviews of data (`soul.pages.api.Extension`).

Each takes the object that does the work, which is made elsewhere: `soul.compare`, `soul.playground`, `soul.annotate`,
`soul.rows.review`. None of these is imported here, so they may import the pages.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from soul.pages.api import BadRequest, NotThere, Query, number_in
from soul.pages.catalogue import Catalogue


class Comparisons:
    """Comparisons of runs of the catalogue.

    compare/ID,ID[/within]                      all numbers, as `soul compare --json` prints them
    compare/ID,ID[/within]/rows/K/SET           the rows of a set in the K-th comparison
    compare/ID,ID[/within]/texts/K/SET/ROW      both texts of a row
    """

    def __init__(self, catalogue: Catalogue) -> None:
        self.catalogue = catalogue
        self._tables: dict[str, Any] = {}  # the last few, because the rows behind them are asked for next

    def get(self, parts: Sequence[str], query: Query) -> Any:
        """The answer to an address."""
        runs: Any = importlib.import_module("soul.compare.runs")
        ids, *rest = parts or [""]
        within = rest[:1] == ["within"]
        table = self._table(runs, ids, within)
        try:
            match rest[within:]:
                case []:
                    return table.to_json()
                case ["rows", place, name]:
                    return runs.rows_of(self._one(table, place), name)
                case ["texts", place, name, row]:
                    return runs.pair_texts(self._one(table, place), name, row)
        except KeyError:  # no such set or row
            pass
        raise NotThere

    def _table(self, runs: Any, ids: str, within: bool) -> Any:
        found = [view for one in ids.split(",") if (view := self.catalogue.view(one))]
        if len(found) < ids.count(",") + 1:
            raise NotThere
        state = tuple(view.overview(None)["revision"] for view in found)
        key = f"{ids} {within} {state}"
        if key not in self._tables:
            if len(self._tables) >= 4:
                del self._tables[next(iter(self._tables))]
            views: dict[Path, Any] = {view.folder: view for view in found}

            def groups_of(folder: Path) -> Any:
                """The groups of a training run, from its index, which is much faster to read than its traces."""
                trainings: Any = importlib.import_module("soul.compare.trainings")
                return views[folder].ask(trainings.means_from_index)

            self._tables[key] = runs.compare_runs(list(views), within=within, groups_of=groups_of)
        return self._tables[key]

    @staticmethod
    def _one(table: Any, place: str) -> Any:
        number = number_in({"comparison": place}, "comparison") or 0
        if number >= len(table.comparisons):
            raise NotThere
        return table.comparisons[number]


class Play:
    """A playground: `soul view --play`.

    play/about, play/rows/TASK?text=T&first=N, play/state/SESSION; POST play/start, say, refine, keep
    """

    def __init__(self, playground: Any) -> None:
        self.playground = playground

    def get(self, parts: Sequence[str], query: Query) -> Any:
        """The answer to an address."""
        match parts:
            case ["about"]:
                return self.playground.about()
            case ["rows", task]:
                return self.playground.rows(task, query.get("text", ""), number_in(query, "first") or 0)
            case ["state", session]:
                return self.playground.state(session)
            case _:
                raise NotThere

    def post(self, parts: Sequence[str], body: Mapping[str, Any]) -> Any:
        """Carry out a request."""
        match parts:
            case ["start"]:
                return self.playground.start(*_of(body, "task", "row", "player"))
            case ["say"]:
                return self.playground.say(*_of(body, "session", "text"))
            case ["refine"]:
                return self.playground.refine(*_of(body, "session"))
            case ["keep"]:
                return self.playground.keep(*_of(body, "session", "as"))
            case _:
                raise NotThere


class Annotate:
    """An annotation: `soul view --annotate FOLDER`.

    annotate/about?person=P      progress, and the next item of a person; POST annotate/label
    annotate/item/N?person=P     an item again, with the person's label
    annotate/agreement           the numbers of `soul judge agree --json`
    """

    def __init__(self, annotation: Any) -> None:
        self.annotation = annotation

    def get(self, parts: Sequence[str], query: Query) -> Any:
        """The answer to an address."""
        person = query.get("person", "")
        match parts:
            case ["about"]:
                return {**self.annotation.progress(), "next": self.annotation.next(person) if person else None}
            case ["agreement"]:
                return self.annotation.agreement()
            case ["item", number]:
                return self.annotation.shown(person, number_in({"item": number}, "item") or 0)
            case _:
                raise NotThere

    def post(self, parts: Sequence[str], body: Mapping[str, Any]) -> Any:
        """Add a label."""
        match parts:
            case ["label"]:
                self.annotation.label(*_of(body, "person", "item", "value"))
                return {}
            case _:
                raise NotThere


class ReviewData:
    """The training files of a folder and what was left out of them: `soul view --review FOLDER`.

    review/about, review/rows/FILE?reason=R&text=T&first=N; POST review/mark
    """

    def __init__(self, review: Any) -> None:
        self.review = review

    def get(self, parts: Sequence[str], query: Query) -> Any:
        """The answer to an address."""
        match parts:
            case ["about"]:
                return {"folder": str(self.review.folder), "files": self.review.about()}
            case ["rows", file]:
                first = number_in(query, "first") or 0
                return self.review.rows(file, query.get("reason", ""), query.get("text", ""), first)
            case _:
                raise NotThere

    def post(self, parts: Sequence[str], body: Mapping[str, Any]) -> Any:
        """Mark a row."""
        match parts:
            case ["mark"]:
                self.review.mark(*_of(body, "file", "row", "mark"))
                return {}
            case _:
                raise NotThere


def _of(body: Mapping[str, Any], *names: str) -> list[Any]:
    """The values of a request's body.

    Raises:
        BadRequest: one is missing.
    """
    missing = [name for name in names if name not in body]
    if missing:
        raise BadRequest(f"{missing[0]}: the request has no such value")
    return [body[name] for name in names]
