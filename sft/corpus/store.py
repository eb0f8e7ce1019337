"""The corpus as token ids on disk: arrow files of `datasets`, mapped into memory, in a folder per corpus file.

tokens.arrow    a row per sequence (`FEATURES`)
shard.json      counts by source; written last, it marks the folder as complete
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from datasets import Features, List, Value
from pydantic import TypeAdapter, ValidationError
from torch.utils.data import Dataset

from sft.encode.sequence import EncodedSequence
from soul.files.whole_file import whole_file

ABOUT, TOKENS = "shard.json", "tokens.arrow"
FEATURES = Features(
    {
        "ids": List(Value("uint32")),
        "spans": List(Value("uint32")),  # start and stop of each trained span
        "starts": List(Value("uint32")),  # where the documents after the first one begin
        "row": Value("uint32"),  # of the corpus file; of several documents, the first one's
        "begins": Value("bool"),  # the first sequence of its row
        "source": Value("string"),
    }
)


@dataclass
class SourceCounts:
    """Counts for the rows of one source.

    Attributes:
        roles: the side whose turns are trained, with what says so -> number of rows.
        tokens: of all sequences.
        rendered_tokens: of one rendering of each row. A template that renders a turn differently later on makes several
            sequences of a row, and `tokens` the larger number.
        left_out: reason -> how many (rows, sequences or turns: the reason names the unit).
    """

    roles: Counter[str] = field(default_factory=Counter)
    rows: int = 0
    sequences: int = 0
    tokens: int = 0
    rendered_tokens: int = 0
    trained_tokens: int = 0
    left_out: Counter[str] = field(default_factory=Counter)

    def add(self, other: SourceCounts) -> None:
        """Add the counts of another part of the source."""
        for name, value in vars(other).items():
            setattr(self, name, getattr(self, name) + value)


@dataclass
class ShardCounts:
    """Counts by source, in the order in which the sources appear, and an example per reason.

    Attributes:
        rows: rows that have a sequence.
        digest: a hash of the sequences; empty for a part of a corpus file. `bytes`: size of the file of tokens.
    """

    sources: dict[str, SourceCounts] = field(default_factory=dict)
    examples: dict[str, str] = field(default_factory=dict)
    rows: int = 0
    sequences: int = 0
    digest: str = ""
    bytes: int = 0

    def source(self, name: str) -> SourceCounts:
        """The counts of a source, created on first use."""
        return self.sources.setdefault(name, SourceCounts())

    def add(self, other: ShardCounts) -> None:
        """Add the counts of another part of the file, or of another file."""
        for name, counts in other.sources.items():
            self.source(name).add(counts)
        for reason, example in other.examples.items():
            self.examples.setdefault(reason, example)
        self.rows += other.rows
        self.sequences += other.sequences

    def write(self, path: Path) -> None:
        """Write the file completely or not at all."""
        with whole_file(path, shared=True) as partial:
            partial.write_bytes(_COUNTS.dump_json(self))


_COUNTS = TypeAdapter(ShardCounts)


def complete(folder: Path) -> ShardCounts | None:
    """The counts of a folder of tokens; None if its files are not complete."""
    try:
        counts: ShardCounts = _COUNTS.validate_json((folder / ABOUT).read_bytes())
        return counts if (folder / TOKENS).stat().st_size == counts.bytes else None
    except (FileNotFoundError, ValidationError):  # none, or cut off by a crash
        return None


class SequenceWriter:
    """Collects the sequences of some rows, and counts them."""

    def __init__(self) -> None:
        self.counts = ShardCounts()
        self._columns: dict[str, list[Any]] = {name: [] for name in FEATURES}

    def add(self, sequences: Sequence[EncodedSequence], source: str, row: int) -> None:
        """Append the sequences of a row, if there are any."""
        if not sequences:
            return
        counts = self.counts.source(source)
        self.counts.rows += 1
        counts.rendered_tokens += max(len(sequence.ids) for sequence in sequences)
        for number, each in enumerate(sequences):
            lists = each.ids, [edge for span in each.spans for edge in span], each.starts[1:]
            arrays = (np.array(values, dtype=np.uint32) for values in lists)
            for column, value in zip(self._columns.values(), (*arrays, row, number == 0, source), strict=True):
                column.append(value)
            counts.tokens += len(each.ids)
            counts.trained_tokens += each.trained
        self.counts.sequences += len(sequences)
        counts.sequences += len(sequences)

    def table(self) -> pa.Table:
        """The sequences as rows of `FEATURES`."""
        return pa.table(self._columns, schema=FEATURES.arrow_schema)


def digest(tokens: Path) -> str:
    """A hash of all sequences of a corpus file; equal hashes mean equal token ids and masks, in the same order."""
    found = hashlib.sha256()
    with pa.memory_map(str(tokens)) as file:
        for batch in pa.ipc.open_stream(file):
            for lists in map(batch.column, ("ids", "spans", "starts")):
                found.update(lists.value_lengths().to_numpy().tobytes())
                found.update(lists.flatten().to_numpy().tobytes())
            found.update(json.dumps([batch.column(name).to_pylist() for name in ("row", "source")]).encode())
    return found.hexdigest()


class TokenStore(Dataset):  # type: ignore[type-arg,misc,unused-ignore]
    """The sequences of several corpus files by number, as torch tensors with the keys that verl's SFT trainer reads.

    The number `~n` (that is, `-1 - n`) gives sequence n with an empty loss mask: ranks that have run out of sequences
    take part with such a filler, so that no token counts twice.
    """

    def __init__(self, folders: Sequence[Path], counts: Sequence[ShardCounts]) -> None:
        self.sources: list[str] = list(dict.fromkeys(name for shard in counts for name in shard.sources))
        self._number = {name: place for place, name in enumerate(self.sources)}
        full = (folder for folder, shard in zip(folders, counts, strict=True) if shard.sequences)
        parts = [datasets.Dataset.from_file(str(folder / TOKENS)) for folder in full]
        self._tokens = datasets.concatenate_datasets(parts).with_format("arrow")
        self.rows = sum(shard.rows for shard in counts)  # that have a sequence; they are numbered consecutively, too

    def __len__(self) -> int:
        return len(self._tokens)

    def __getstate__(self) -> dict[str, Any]:
        """Everything but the columns in memory, which the workers of a loader do not need."""
        return {name: value for name, value in vars(self).items() if name not in ("lengths", "_first")}

    def __getitem__(self, sequence: int) -> dict[str, Any]:
        filler = sequence < 0
        stored = self._tokens[~sequence if filler else sequence]
        ids, spans, starts = (
            stored.column(name).chunk(0).flatten().to_numpy().astype(np.int64) for name in ("ids", "spans", "starts")
        )
        mask = np.zeros_like(ids)
        positions = np.arange(len(ids))
        for start, stop in () if filler else spans.reshape(-1, 2).tolist():
            mask[start:stop] = 1
        for start in starts.tolist():  # positions begin again in each document
            positions[start:] = np.arange(len(ids) - start)
        return {
            "input_ids": torch.from_numpy(ids),
            "position_ids": torch.from_numpy(positions),
            "loss_mask": torch.from_numpy(mask),
            "source": self._number[stored.column("source")[0].as_py()],
        }

    @cached_property
    def lengths(self) -> np.ndarray:
        """Number of tokens of each sequence."""
        return np.concatenate([chunk.value_lengths().to_numpy() for chunk in self._tokens.data.column("ids").chunks])

    @cached_property
    def _first(self) -> np.ndarray:
        """The first sequence of each row, and the end of the last row."""
        return np.append(np.flatnonzero(self.column("begins")), len(self))

    def row_sequences(self, rows: np.ndarray) -> np.ndarray:
        """The sequences of these rows, one row after the other."""
        if self.rows == len(self):  # every row is one sequence
            return np.asarray(rows, dtype=np.int64)
        parts = [np.arange(self._first[row], self._first[row + 1]) for row in rows.tolist()]
        return np.concatenate([np.empty(0, dtype=np.int64), *parts])

    def sequences_by_source(self) -> list[np.ndarray]:
        """The sequence numbers of each source."""
        numbers = pc.index_in(self._tokens.data.column("source"), value_set=pa.array(self.sources)).to_numpy()
        return [np.flatnonzero(numbers == number) for number in range(len(self.sources))]

    def column(self, name: str) -> np.ndarray:
        """A column of `FEATURES`, for all sequences."""
        return np.concatenate([chunk.to_numpy(zero_copy_only=False) for chunk in self._tokens.data.column(name).chunks])
