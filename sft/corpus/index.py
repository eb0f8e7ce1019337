"""Row groups, columns and sources of the files, read once and kept in a cache.

A cached entry is valid while the file's size and modification time match it, so a start with a warm cache costs one
`stat` per file, however many rows there are.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pydantic import TypeAdapter, ValidationError

from sft.corpus.columns import READ, needs_rule
from sft.encode.conversation import Layout
from sft.encode.train_roles import source_of
from soul.errors import SoulError, one_line
from soul.files.whole_file import whole_file

logger = logging.getLogger(__name__)
VERSION = 3
FILE = "row_index.json"


class BadShard(SoulError):
    """A shard cannot be read, or lacks the columns of every known layout."""


@dataclass(frozen=True)
class Shard:
    """A parquet file as it was when it was indexed.

    Attributes:
        groups: number of rows of each row group.
        columns: names of the columns; the fields of a struct appear as `extra_info.messages`.
        sources: the sources of the rows for which a rule must name the trained side.
    """

    path: str
    size: int
    mtime_ns: int
    groups: tuple[int, ...]
    columns: tuple[str, ...]
    sources: tuple[str, ...] = ()

    @property
    def rows(self) -> int:
        """Number of rows of the file."""
        return sum(self.groups)

    @property
    def layout(self) -> Layout:
        """Where the file keeps its conversations.

        Raises:
            BadShard: the columns fit no known layout.
        """
        chats: tuple[Layout, ...] = ("messages", "extra_info.messages")
        for layout in chats:
            if layout in self.columns:
                return layout
        lacking = [name for name in ("prompt", "response") if name not in self.columns]
        if not lacking:
            return "prompt_response"
        column = lacking[0] if len(lacking) == 1 else "messages"
        raise BadShard(
            f"{self.path}: the column {column!r} is missing (it has: {', '.join(self.columns) or 'none'}). A file for "
            "SFT has messages (a list of role and content), extra_info.messages, or prompt and response."
        )

    def wanted(self, ignored: Collection[str] = ()) -> list[str]:
        """The columns to read, without those to ignore."""
        columns = ["prompt", "response"] if self.layout == "prompt_response" else [self.layout]
        return columns + [name for name in READ if name in self.columns and name not in ignored]


@dataclass(frozen=True)
class Cache:
    """The file of the cache: path -> shard."""

    version: int
    shards: dict[str, Shard]


_CACHE = TypeAdapter(Cache)


def read_index(files: Sequence[Path], cache_dir: Path) -> list[Shard]:
    """The shards of the files in their order, from the cache if it is still valid.

    Raises:
        BadShard: a file is missing or is not a parquet file.
    """
    cache = cache_dir / FILE
    known = _load(cache)
    shards: dict[str, Shard] = {}
    fresh: list[Path] = []
    for file in files:
        entry, stat = known.get(str(file)), _stat(file)
        if entry and (entry.size, entry.mtime_ns) == (stat.st_size, stat.st_mtime_ns):
            shards[entry.path] = entry
        else:
            fresh.append(file)
    if fresh:
        logger.info("reading footers and sources of %d new or changed parquet files", len(fresh))
        with ThreadPoolExecutor(max_workers=8) as pool:
            shards |= {shard.path: shard for shard in pool.map(_read_footer, fresh)}
        _save(cache, known | shards)
    return [shards[str(file)] for file in files]


def _stat(file: Path) -> os.stat_result:
    try:
        return file.stat()
    except OSError as error:
        raise BadShard(f"{file}: cannot be read ({error.strerror}). Check the path and its permissions.") from error


def _read_footer(file: Path) -> Shard:
    stat = _stat(file)
    try:
        with pq.ParquetFile(file) as parquet:
            footer, columns = parquet.metadata, _columns(parquet.schema_arrow)
            groups = tuple(footer.row_group(number).num_rows for number in range(footer.num_row_groups))
            sources = _sources(parquet, columns) if needs_rule(columns) else ()
    except (pa.ArrowException, OSError) as error:
        raise BadShard(
            f"{file}: not a readable parquet file ({one_line(error, 200)}). Download or build it again."
        ) from error
    return Shard(str(file), stat.st_size, stat.st_mtime_ns, groups, columns, sources)


def _columns(schema: pa.Schema) -> tuple[str, ...]:
    columns: list[str] = []
    for field in schema:
        inner = field.type if pa.types.is_struct(field.type) else ()
        columns += [field.name, *(f"{field.name}.{part.name}" for part in inner)]
    return tuple(columns)


def _sources(parquet: pq.ParquetFile, columns: Collection[str]) -> tuple[str, ...]:
    """The sources of the rows without a `train_role`. Only these two columns are read."""
    present = [name for name in ("data_source", "train_role") if name in columns]
    if not present:
        return (source_of(None),)
    found: dict[str, None] = {}
    for batch in parquet.iter_batches(1 << 16, columns=present):
        if "train_role" in present:
            batch = batch.filter(pc.is_null(batch.column("train_role")))
        if batch.num_rows:
            values = batch.column("data_source").unique().to_pylist() if "data_source" in present else [None]
            found |= dict.fromkeys(source_of(value) for value in values)
    return tuple(found)


def _load(cache: Path) -> dict[str, Shard]:
    """The entries of the cache; empty if it is absent, damaged or of another version: the footers are read again."""
    try:
        content = _CACHE.validate_json(cache.read_bytes())
    except (FileNotFoundError, ValidationError):
        return {}
    return content.shards if content.version == VERSION else {}


def _save(cache: Path, shards: dict[str, Shard]) -> None:
    cache.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(cache, shared=True) as partial:
        partial.write_bytes(_CACHE.dump_json(Cache(VERSION, shards)))
