"""The corpus as token ids on disk: two flat files per shard, read in place.

    ids.bin          uint32: a sequence's ids, its spans (start and stop of each trained span), its documents' starts
    sequences.bin    28 bytes per sequence (`RECORD`): where its ids are, how many, of which row and source
    rows.bin         uint32: the first sequence of each row that has any; a row's sequences follow each other
    shard.json       counts by source; written last, it marks the others as complete

Sequences are read with `pread`, two calls each. A memory map would do, but its pages count as memory of the reader,
which would then grow with the corpus.
"""

from __future__ import annotations

import itertools
import json
import os
from collections import Counter, OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from sft.encode.sequence import EncodedSequence
from soul.files.whole_file import write_whole

WORD: np.dtype = np.dtype("<u4")
RECORD: np.dtype = np.dtype(
    [
        ("offset", "<u8"),  # in words of ids.bin
        ("row", "<u4"),  # of the shard; of several documents, the first one's
        ("length", "<u4"),
        ("trained", "<u4"),
        ("spans", "<u2"),
        ("starts", "<u2"),  # of documents after the first one, which begins at 0
        ("spare", "<u2"),
        ("source", "<u2"),  # place in the list of shard.json; `TokenStore` returns the place in its own list
    ]
)
IDS, SEQUENCES, ROWS, ABOUT = "ids.bin", "sequences.bin", "rows.bin", "shard.json"
OPEN_FILES = 256  # at most, per reader


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
        self.roles += other.roles
        self.rows += other.rows
        self.sequences += other.sequences
        self.tokens += other.tokens
        self.rendered_tokens += other.rendered_tokens
        self.trained_tokens += other.trained_tokens
        self.left_out += other.left_out


@dataclass
class ShardCounts:
    """Contents of shard.json: counts by source (in the order of the records' source numbers), an example per reason.

    Attributes:
        rows: rows that have a sequence.
        words: length of ids.bin.
        digest: a hash of the sequences; empty for a part of a shard.
    """

    sources: dict[str, SourceCounts] = field(default_factory=dict)
    examples: dict[str, str] = field(default_factory=dict)
    rows: int = 0
    sequences: int = 0
    words: int = 0
    digest: str = ""

    def source(self, name: str) -> SourceCounts:
        """The counts of a source, created on first use."""
        return self.sources.setdefault(name, SourceCounts())

    def add(self, other: ShardCounts) -> None:
        """Add the counts of another part of the shard, or of another shard."""
        for name, counts in other.sources.items():
            self.source(name).add(counts)
        for reason, example in other.examples.items():
            self.examples.setdefault(reason, example)
        self.rows += other.rows
        self.sequences += other.sequences
        self.words += other.words

    def write(self, path: Path) -> None:
        """Write the file completely or not at all."""
        write_whole(path, json.dumps(vars(self), default=vars))

    @classmethod
    def read(cls, path: Path) -> ShardCounts | None:
        """Read a file; None if it does not exist or is damaged."""
        try:
            content = json.loads(path.read_text())
            for name, counts in content["sources"].items():
                counters = {key: Counter(counts[key]) for key in ("roles", "left_out")}
                content["sources"][name] = SourceCounts(**{**counts, **counters})
            return cls(**content)
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError, AttributeError):
            return None  # cut off by a crash: its sequences are made again


class SequenceWriter:
    """Append rows of sequences to files. Use as a context manager: the counts are complete after it has closed."""

    def __init__(self, ids: Path, sequences: Path, rows: Path) -> None:
        self.counts = ShardCounts()
        self._numbers: dict[str, int] = {}
        self._ids: BinaryIO = open(ids, "wb", buffering=1 << 20)  # noqa: SIM115 (closed by __exit__)
        self._sequences: BinaryIO = open(sequences, "wb", buffering=1 << 18)  # noqa: SIM115
        self._rows: BinaryIO = open(rows, "wb", buffering=1 << 16)  # noqa: SIM115

    def __enter__(self) -> SequenceWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self._ids.close()
        self._sequences.close()
        self._rows.close()

    def add(self, sequences: Sequence[EncodedSequence], source: str, row: int) -> None:
        """Append the sequences of a row, if there are any."""
        if not sequences:
            return
        self._rows.write(np.array(self.counts.sequences, dtype=WORD).tobytes())
        self.counts.rows += 1
        self.counts.source(source).rendered_tokens += max(len(sequence.ids) for sequence in sequences)
        for sequence in sequences:
            self._add(sequence, source, row)

    def _add(self, sequence: EncodedSequence, source: str, row: int) -> None:
        counts = self.counts.source(source)
        if source not in self._numbers:
            self._numbers = {name: number for number, name in enumerate(self.counts.sources)}
        edges = (edge for span in sequence.spans for edge in span)
        words = np.array([*sequence.ids, *edges, *sequence.starts[1:]], dtype=WORD)
        marks = len(sequence.spans), len(sequence.starts) - 1
        record = (self.counts.words, row, len(sequence.ids), sequence.trained, *marks, 0, self._numbers[source])
        self._ids.write(words.tobytes())
        self._sequences.write(np.array(record, dtype=RECORD).tobytes())
        self.counts.words += len(words)
        self.counts.sequences += 1
        counts.sequences += 1
        counts.tokens += len(sequence.ids)
        counts.trained_tokens += sequence.trained


def complete(folder: Path) -> ShardCounts | None:
    """The counts of a shard; None if its files are not complete."""
    counts = ShardCounts.read(folder / ABOUT)
    if counts is None:
        return None
    words = {IDS: counts.words, ROWS: counts.rows}
    sizes = {SEQUENCES: counts.sequences * RECORD.itemsize} | {name: n * WORD.itemsize for name, n in words.items()}
    fits = all((folder / name).is_file() and (folder / name).stat().st_size == size for name, size in sizes.items())
    return counts if fits else None


@dataclass(frozen=True)
class StoredSequence:
    """A sequence as arrays of int64.

    Attributes:
        mask: 1 for a trained token.
        positions: of each token in its document.
        source: number of its source.
    """

    ids: np.ndarray
    mask: np.ndarray
    positions: np.ndarray
    source: int


class TokenStore:
    """Read the sequences of several shards, numbered consecutively; and which of them belong to a row.

    Args:
        folders: the folders of the shards.
        counts: the counts of each shard.
    """

    def __init__(self, folders: Sequence[Path], counts: Sequence[ShardCounts]) -> None:
        self.sources: list[str] = list(dict.fromkeys(name for shard in counts for name in shard.sources))
        self._folders = [str(folder) for folder in folders]
        self._first = np.cumsum([0, *(shard.sequences for shard in counts)])
        self._first_row = np.cumsum([0, *(shard.rows for shard in counts)])
        number = {name: place for place, name in enumerate(self.sources)}
        self._source = [np.array([number[name] for name in shard.sources], dtype=WORD) for shard in counts]
        self._files: OrderedDict[str, int] = OrderedDict()

    def __len__(self) -> int:
        return int(self._first[-1])

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_files": OrderedDict()}  # each process opens its own files

    def __del__(self) -> None:
        for descriptor in self.__dict__.get("_files", {}).values():
            os.close(descriptor)

    @property
    def rows(self) -> int:
        """Number of rows that have a sequence; they are numbered consecutively, too."""
        return int(self._first_row[-1])

    def row_sequences(self, rows: np.ndarray) -> np.ndarray:
        """The sequences of these rows, one row after the other."""
        if self.rows == len(self):  # every row is one sequence
            return np.asarray(rows, dtype=np.int64)
        shards: np.ndarray = np.asarray(np.searchsorted(self._first_row, rows, side="right") - 1)
        parts = [self._sequences_of(row, shard) for row, shard in zip(rows.tolist(), shards.tolist(), strict=True)]
        return np.concatenate(parts) if parts else np.empty(0, dtype=np.int64)

    def _sequences_of(self, row: int, shard: int) -> np.ndarray:
        if not 0 <= row < self.rows:
            raise IndexError(f"row {row} of {self.rows}")
        first, rows = int(self._first[shard]), int(self._first_row[shard + 1] - self._first_row[shard])
        place = row - int(self._first_row[shard])
        edges = 1 if place == rows - 1 else 2  # the last row ends with the shard
        words = np.frombuffer(
            self._pread(shard, ROWS, edges * WORD.itemsize, place * WORD.itemsize), dtype=WORD
        ).tolist()
        stop = first + words[1] if edges == 2 else int(self._first[shard + 1])
        return np.arange(first + words[0], stop, dtype=np.int64)

    def records(self, sequences: np.ndarray) -> np.ndarray:
        """The records of sequences, with the store's own source numbers."""
        records = np.empty(len(sequences), dtype=RECORD)
        shards: np.ndarray = np.asarray(np.searchsorted(self._first, sequences, side="right") - 1)
        for place, (sequence, shard) in enumerate(zip(sequences.tolist(), shards.tolist(), strict=True)):
            self._check(sequence)
            records[place] = self._record(sequence, shard)
        return records

    def read(self, sequence: int) -> StoredSequence:
        """One sequence."""
        self._check(sequence)
        shard = int(np.searchsorted(self._first, sequence, side="right")) - 1
        record = self._record(sequence, shard)
        length, spans, starts = (int(record[name]) for name in ("length", "spans", "starts"))
        at = int(record["offset"]) * WORD.itemsize
        size = (length + 2 * spans + starts) * WORD.itemsize
        words = np.frombuffer(self._pread(shard, IDS, size, at), dtype=WORD).astype(np.int64)
        mask: np.ndarray = np.zeros(length, dtype=np.int64)
        for start, stop in words[length : length + 2 * spans].reshape(-1, 2).tolist():
            mask[start:stop] = 1
        positions: np.ndarray = np.arange(length, dtype=np.int64)
        for start in words[length + 2 * spans :].tolist():
            positions[start:] = np.arange(length - start)
        return StoredSequence(words[:length], mask, positions, int(record["source"]))

    def sequences_by_source(self, part: int = 1 << 16) -> list[np.ndarray]:
        """The sequence numbers of each source; reads all records, `part` at a time."""
        by_source: list[list[np.ndarray]] = [[] for _ in self.sources]
        for shard, (first, last) in enumerate(itertools.pairwise(int(edge) for edge in self._first)):
            for start in range(first, last, part):
                count = min(part, last - start)
                at = (start - first) * RECORD.itemsize
                records = np.frombuffer(self._pread(shard, SEQUENCES, count * RECORD.itemsize, at), dtype=RECORD)
                sources = self._source[shard][records["source"]]
                for source in np.unique(sources).tolist():
                    by_source[source].append(start + np.flatnonzero(sources == source))
        return [np.concatenate(parts) if parts else np.empty(0, dtype=np.int64) for parts in by_source]

    def _check(self, sequence: int) -> None:
        if not 0 <= sequence < len(self):
            raise IndexError(f"sequence {sequence} of {len(self)}")

    def _record(self, sequence: int, shard: int) -> np.void:
        at = (sequence - int(self._first[shard])) * RECORD.itemsize
        record = np.frombuffer(self._pread(shard, SEQUENCES, RECORD.itemsize, at), dtype=RECORD).copy()[0]
        record["source"] = self._source[shard][record["source"]]
        return record

    def _pread(self, shard: int, name: str, size: int, at: int) -> bytes:
        path = f"{self._folders[shard]}/{name}"
        descriptor = self._files.pop(path, None)
        if descriptor is None:
            descriptor = os.open(path, os.O_RDONLY)
            if len(self._files) >= OPEN_FILES:
                os.close(self._files.popitem(last=False)[1])
        self._files[path] = descriptor
        content = os.pread(descriptor, size, at)
        if len(content) != size:
            raise OSError(f"{path}: {len(content)} of {size} bytes at {at}; was the cache changed during the run?")
        return content
