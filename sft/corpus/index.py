"""What the files of a corpus hold: rows, columns and sources; read once, and kept in a cache.

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
from sft.encode.layouts import Layout, find_layout, layout_columns
from sft.encode.train_roles import source_of
from sft.formats.contents import Contents
from sft.formats.names import BadShard
from sft.formats.reading import describe
from soul.errors import one_line
from soul.files.whole_file import whole_file

logger = logging.getLogger(__name__)
VERSION = 4
FILE = "row_index.json"


@dataclass(frozen=True)
class Shard:
    """A file of the corpus as it was when it was indexed.

    Attributes:
        sources: in parquet, the sources of the rows for which a rule must name the trained side; other formats show
            them only when they are tokenised.
    """

    path: str
    size: int
    mtime_ns: int
    contents: Contents
    sources: tuple[str, ...] = ()

    @property
    def rows(self) -> int:
        """Number of rows of the file."""
        return self.contents.rows

    @property
    def layout(self) -> Layout:
        """Where the file keeps its conversations or documents.

        Raises:
            BadShard: the columns fit no known layout.
        """
        return find_layout(self.contents.columns, self.path)

    def wanted(self, ignored: Collection[str] = ()) -> list[str]:
        """The columns to read, without those to ignore."""
        columns = self.contents.columns
        read = [*layout_columns(self.layout, columns), *(name for name in READ if name in columns)]
        return [name for name in read if name not in ignored]


@dataclass(frozen=True)
class Cache:
    """The file of the cache: path -> shard."""

    version: int
    shards: dict[str, Shard]


_CACHE = TypeAdapter(Cache)


def read_index(files: Sequence[Path], cache_dir: Path) -> list[Shard]:
    """The shards of the files in their order, from the cache if it is still valid.

    Raises:
        BadShard: a file is missing or cannot be read.
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
        logger.info("indexing %d new or changed files", len(fresh))
        with ThreadPoolExecutor(max_workers=8) as pool:
            shards |= {shard.path: shard for shard in pool.map(_index, fresh)}
        _save(cache, known | shards)
    return [shards[str(file)] for file in files]


def _stat(file: Path) -> os.stat_result:
    try:
        return file.stat()
    except OSError as error:
        raise BadShard(f"{file}: cannot be read ({error.strerror}). Check the path and its permissions.") from error


def _index(file: Path) -> Shard:
    stat = _stat(file)
    contents = describe(file)
    sources = _sources(file, contents) if contents.kind == "parquet" and needs_rule(contents.columns) else ()
    return Shard(str(file), stat.st_size, stat.st_mtime_ns, contents, sources)


def _sources(file: Path, contents: Contents) -> tuple[str, ...]:
    """The sources of the rows without a `train_role`. Only these two columns are read."""
    present = [name for name in ("data_source", "train_role") if name in contents.columns]
    if not present:
        return (source_of(None),)
    found: dict[str, None] = {}
    try:
        with pq.ParquetFile(file) as parquet:
            for batch in parquet.iter_batches(1 << 16, columns=present):
                if "train_role" in present:
                    batch = batch.filter(pc.is_null(batch.column("train_role")))
                if batch.num_rows:
                    values = batch.column("data_source").unique().to_pylist() if "data_source" in present else [None]
                    found |= dict.fromkeys(source_of(value) for value in values)
    except (pa.ArrowException, OSError) as error:
        raise BadShard(f"{file}: cannot be read ({one_line(error, 200)}). Download or build it again.") from error
    return tuple(found)


def _load(cache: Path) -> dict[str, Shard]:
    """The entries of the cache; empty if it is absent, damaged or of another version: the files are read again."""
    try:
        content = _CACHE.validate_json(cache.read_bytes())
    except (FileNotFoundError, ValidationError):
        return {}
    return content.shards if content.version == VERSION else {}


def _save(cache: Path, shards: dict[str, Shard]) -> None:
    cache.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(cache, shared=True) as partial:
        partial.write_bytes(_CACHE.dump_json(Cache(VERSION, shards)))
