"""What a stage has been answered: one JSON line for each item, written as soon as the item is decided.

A line is flushed before the next item counts as done, and a half line that a killed process left behind is cut off, so
the same command goes on where it stopped and asks nothing twice.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Self, TextIO

from pydantic import BaseModel, ConfigDict, ValidationError

from data.reading import cut_torn_line
from soul.errors import SoulError, one_line
from soul.validation_errors import first_problem

_REPAIR = "Delete this line to ask about its item again; the other answers are kept."


class BadJournal(SoulError):
    """A journal cannot be read, or was written by another model or with another prompt."""


class Entry(BaseModel):
    """The decision about one item.

    Attributes:
        data: what the model was shown.
        answer: the model's answer, also of an item that was dropped; None if it gave none.
        reason: why the item was dropped; "" if it was kept.
        calls, usd: spent on this item; `unpriced`: calls whose price is unknown.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    key: str
    data: Mapping[str, Any]
    answer: Mapping[str, Any] | None
    reason: str = ""
    calls: int
    usd: float
    unpriced: int
    model: str
    prompt: str


class Journal:
    """The entries of one stage, in a file. Use it as a context to append."""

    def __init__(self, path: Path, model: str, prompt: str) -> None:
        """Read what is there.

        Raises:
            BadJournal: a line is no entry, or comes from another model or prompt.
        """
        self.path, self.model, self.prompt = path, model, prompt
        self.entries: dict[str, Entry] = {}
        self._file: TextIO | None = None
        if not path.exists():
            return
        for where, record in self._lines():
            try:
                entry = Entry.model_validate(record)
            except ValidationError as error:
                problem = first_problem(error)
                raise BadJournal(f"{where}: field {problem.field}: {problem.message}. {_REPAIR}") from error
            if (entry.model, entry.prompt) != (model, prompt):
                raise BadJournal(
                    f"{path} holds answers of {entry.model} to {entry.prompt}, but this run asks {model} with {prompt}."
                    " Use the same model, or move the file away to ask again."
                )
            self.entries[entry.key] = entry

    def _lines(self) -> Iterator[tuple[str, Any]]:
        """The whole lines. A half line, which a process is writing or has left when it was killed, is no entry."""
        with self.path.open("rb") as lines:
            for number, line in enumerate(lines, start=1):
                if not line.endswith(b"\n"):
                    return
                where = f"{self.path}: line {number}"
                try:
                    yield where, json.loads(line)
                except ValueError as error:
                    raise BadJournal(f"{where}: not JSON ({one_line(error)}). {_REPAIR}") from error

    def decided(self, key: str, data: Mapping[str, Any]) -> Entry | None:
        """The entry about this item; None without one, or if it was about other data under the same key."""
        entry = self.entries.get(key)
        return entry if entry is not None and entry.data == json.loads(json.dumps(data)) else None

    def __enter__(self) -> Self:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        if self.path.exists():
            cut_torn_line(self.path)
        self._file = self.path.open("a", encoding="utf-8")
        return self

    def __exit__(self, *_: object) -> None:
        assert self._file is not None
        self._file.close()

    def add(self, entry: Entry) -> None:
        """Append an entry and flush it."""
        assert self._file is not None
        line = json.dumps(entry.model_dump(mode="json"), ensure_ascii=False)
        self._file.write(f"{line}\n")
        self._file.flush()
        self.entries[entry.key] = Entry.model_validate(json.loads(line))  # as a later run will read it
