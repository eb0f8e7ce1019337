"""A score of ours beside the authors' own code, on the same invented answers."""

import ast
import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from soul import tasks
from soul.task_types import Episode, Scored

Score = Callable[[Any], float]


@dataclass(frozen=True)
class Comparison:
    """A number of docs/parity.md that we and public code compute from the same cases.

    Attributes:
        evaluation_set, metric, repository: the first two cells of the page's line, and the one with the authors' code,
            which is the name of their clone below `--authors`.
        cases: invented answers (for a set-level metric, lists of results), each given to both sides.
        ours: our score of a case.
        authors: returns the authors' score, from their files in the clone.
    """

    evaluation_set: str
    metric: str
    repository: str
    cases: Sequence[Any]
    ours: Score
    authors: Callable[[Path], Score]


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


def authors_score(file: str, names: str, score: Callable[[Any], Score], **given: Any) -> Callable[[Path], Score]:
    """Load the authors' score of a case.

    Args:
        file: a path below the clone.
        names: what is taken from it, separated by spaces.
        score: makes the score from the last of the names.
        given: modules that the names use.
    """
    wanted = names.split()
    return lambda clone: score(authors_names(clone / file, wanted, given)[wanted[-1]])


def judged_by_rule(task_name: str, record: Mapping[str, Any], said: str) -> Scored:
    """Judge what the policy said about a record, for a task that needs no model to judge it."""
    task = tasks.load(task_name)
    row = task.row_type.model_validate({"index": 0, **record})
    episode = Episode({"policy": [{"role": "assistant", "content": said}]})
    return Scored(episode, asyncio.run(task.judge(row, episode, None)))  # type: ignore[arg-type]


def tagged(said: str) -> str:
    """The form in which most tasks ask for an answer."""
    return f"<answer>{said}</answer>"
