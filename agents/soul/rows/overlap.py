"""Find training rows that share a story, a conversation, a book or a user with rows that are evaluated.

A paraphrase of an evaluation story has a different prompt, and so has a second question about the same conversation. So
each task names what its rows have in common (`Task.group_keys`), and two rows overlap if they share such a key. Keys
that are texts (`GroupKey.prose`) can also be compared by their words (`near_text.py`). Stories that are generated from
one template are near to each other although they differ in what counts, so the caller decides.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from soul.rows.near_text import NearTexts
from soul.rows.task_files import TaskRow
from soul.task import Task
from soul.task_types import BOOK, GroupKey

EXAMPLES = 3

# The task's name, or "" for keys that are compared across tasks, and the key.
ScopedKey = tuple[str, GroupKey]


@dataclass(frozen=True)
class Overlap:
    """The rows of one task in one training file that share a group with evaluation rows.

    Attributes:
        rows: their positions in the file, from 0.
        groups: how many different groups they share; of a row that shares several, the first one counts.
        examples: the names of the first groups, at most three.
    """

    file: str
    task: str
    rows: tuple[int, ...]
    groups: int
    examples: tuple[str, ...]

    def __str__(self) -> str:
        names = "; ".join([*self.examples, *(["..."] if self.groups > len(self.examples) else [])])
        rows = f"{len(self.rows):,} {'row' if len(self.rows) == 1 else 'rows'}"
        groups = f"{self.groups:,} {'group that is' if self.groups == 1 else 'groups that are'}"
        return f"{self.file}: {self.task}: {rows} in {groups} also evaluated: {names}"


class HeldOut:
    """The groups that evaluation rows hold out from training."""

    def __init__(self, rows: Iterable[TaskRow] = (), near: float | None = None) -> None:
        """Collect the groups.

        Args:
            near: also hold out texts that share this much with an evaluated one, above 0 to 1 (`NearTexts`); None: only
                equal keys.
        """
        self._keys = {key for row in rows for key in held_out_keys(row)}
        texts: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
        for scope, key in sorted(self._keys):
            if near is not None and key.prose:
                texts[scope, key.kind].append(key.value)
        self._near = {place: NearTexts(values, near or 1.0) for place, values in texts.items()}

    def __bool__(self) -> bool:
        return bool(self._keys)

    def shared(self, row: TaskRow) -> list[ScopedKey]:
        """The keys of a training row that are held out; empty if the row may be trained on."""
        return self.shared_keys(group_keys(row))

    def shared_keys(self, keys: Iterable[ScopedKey]) -> list[ScopedKey]:
        """As `shared`, for the `group_keys` of a row."""
        return [key for key in keys if key in self._keys or self._is_near(*key)]

    def _is_near(self, scope: str, key: GroupKey) -> bool:
        texts = self._near.get((scope, key.kind)) if key.prose else None
        return texts is not None and texts.find(key.value) is not None

    def overlaps(self, rows: Iterable[TaskRow]) -> list[Overlap]:
        """The training rows that must not be trained on, by file and task."""
        first_keys: defaultdict[tuple[str, str], dict[int, GroupKey]] = defaultdict(dict)
        for row in rows:
            if shared := self.shared(row):
                first_keys[row.file, row.task.name][row.number] = shared[0][1]
        found = []
        for (file, task), by_row in first_keys.items():
            groups = list(dict.fromkeys(by_row.values()))
            examples = tuple(map(str, groups[:EXAMPLES]))
            found.append(Overlap(file, task, tuple(by_row), len(groups), examples))
        return found


def group_keys(row: TaskRow) -> list[ScopedKey]:
    """`Task.group_keys` of a row. Keys of different tasks differ, unless their kind is compared across tasks."""
    return _scoped(row.task, row.task.group_keys(row.row))


def held_out_keys(row: TaskRow) -> list[ScopedKey]:
    """`Task.held_out_keys` of a row, in the form of `group_keys`."""
    return _scoped(row.task, row.task.held_out_keys(row.row))


def _scoped(task: Task[Any], keys: Sequence[GroupKey]) -> list[ScopedKey]:
    return [("" if key.kind == BOOK else task.name, key) for key in keys if key.value]
