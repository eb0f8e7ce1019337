"""The parts of the API for comparisons, playground, annotation and reviews of data.

    compare/ID,ID[/within]                      all numbers, as `soul compare --json` prints them
    compare/ID,ID[/within]/rows/K/SET           the rows of a set in the K-th comparison
    compare/ID,ID[/within]/texts/K/SET/ROW      both texts of a row
    play/about, play/rows/TASK?text=T&first=N, play/state/SESSION; POST play/start, say, refine, keep
    annotate/about?person=P                     progress, and the next item of a person; POST annotate/label
    annotate/item?person=P&item=N               an item again, with the person's label
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

from soul.pages.api import NotThere, Query, called
from soul.pages.catalogue import Catalogue


class Comparisons:
    """Comparisons of runs of the catalogue."""

    def __init__(self, catalogue: Catalogue) -> None:
        self.catalogue = catalogue
        self._last: tuple[Any, Any] = (None, None)  # runs with their revisions, and their comparison

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
                    return runs.rows_of(table.comparisons[int(place)], name)
                case ["texts", place, name, row]:
                    return runs.pair_texts(table.comparisons[int(place)], name, row)
        except (LookupError, ValueError):  # no such comparison, set or row
            pass
        raise NotThere

    def _table(self, runs: Any, ids: Sequence[str], within: bool) -> Any:
        found = [view for one in ids if (view := self.catalogue.view(one))]
        if len(found) < len(ids):
            raise NotThere
        key = (*ids, within, *(view.overview(None)["revision"] for view in found))
        if key != self._last[0]:
            views: dict[Path, Any] = {view.folder: view for view in found}
            # The index of a training run has its groups; reading them from its traces takes much longer.
            means = importlib.import_module("soul.compare.trainings").means_from_index
            table = runs.compare_runs(list(views), within=within, groups_of=lambda folder: views[folder].ask(means))
            self._last = key, table
        return self._last[1]


@dataclass(frozen=True)
class Routes:
    """An extension made of functions, which get further parts of the address, and values of the query or the body."""

    gets: Mapping[str, Callable[..., Any]]
    posts: Mapping[str, Callable[..., Any]]

    def get(self, parts: Sequence[str], query: Query) -> Any:
        """The answer to an address."""
        return called(self.gets, parts, query)

    def post(self, parts: Sequence[str], body: Mapping[str, Any]) -> Any:
        """Carry out a request."""
        return called(self.posts, parts, body) or {}


def play(ground: Any) -> Routes:
    """A playground: `soul view --play`."""
    gets = {"about": ground.about, "rows": ground.rows, "state": ground.state}
    return Routes(gets, {"start": ground.start, "say": ground.say, "refine": ground.refine, "keep": ground.keep})


def annotate(annotation: Any) -> Routes:
    """An annotation: `soul view --annotate FOLDER`."""

    def about(person: str = "") -> dict[str, Any]:
        return {**annotation.progress(), "next": annotation.next(person) if person else None}

    gets = {"about": about, "item": annotation.shown, "agreement": annotation.agreement}
    return Routes(gets, {"label": annotation.label})


def review(data: Any) -> Routes:
    """The training files of a folder and what was left out of them: `soul view --review FOLDER`."""
    about = lambda: {"folder": str(data.folder), "files": data.about()}  # noqa: E731
    return Routes({"about": about, "rows": data.rows}, {"mark": data.mark})
