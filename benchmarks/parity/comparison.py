"""A score of ours beside the authors' own code, on the same invented answers."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

Score = Callable[[Any], float]


@dataclass(frozen=True)
class Comparison:
    """How one number of one evaluation set is computed by us and by the authors.

    Attributes:
        evaluation_set: a set of SOUL, or several that share the definition, as the page names them.
        metric: our name of the number; "headline" is said where it is the set's headline.
        follows: whose definition our number has.
        differs: one sentence about what differs from the authors' code, "" if nothing does.
        repository: the name of the authors' clone, a folder below `--authors`; "" where no public code scores the set.
        cases: invented answers (for a set-level metric, lists of results), each given to both sides.
        ours: our score of a case.
        authors: returns the authors' score, from their files in the clone.
    """

    evaluation_set: str
    metric: str
    follows: Literal["authors", "paper", "original"]
    differs: str = ""
    repository: str = ""
    cases: Sequence[Any] = ()
    ours: Score | None = None
    authors: Callable[[Path], Score] | None = None


def authors_names(path: Path, names: Sequence[str], given: Mapping[str, Any]) -> dict[str, Any]:
    """Run the named functions, classes and constants of an authors' file, without the rest of it.

    Their files import engines, clients and data at the top, which a score does not need; `given` holds the modules that
    the named parts use. Raises ValueError if a name is not in the file.
    """
    chosen: list[ast.stmt] = []
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        targets = [t.id for t in getattr(node, "targets", []) if isinstance(t, ast.Name)]
        for name in [getattr(node, "name", None), *targets]:
            if isinstance(name, str) and name in names and name not in found and isinstance(node, ast.stmt):
                found.add(name)
                chosen.append(node)
    if missing := set(names) - found:
        raise ValueError(f"{path}: no {', '.join(sorted(missing))} in this file; the authors have changed it")
    namespace: dict[str, Any] = dict(given)
    exec(compile(ast.Module(chosen, []), str(path), "exec"), namespace)  # noqa: S102  (the authors' code is the subject)
    return {name: namespace[name] for name in names}
