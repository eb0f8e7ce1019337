"""Tokenise a corpus into its token store: once, with several processes.

A shard is cut into units of a few thousand rows. A worker writes a unit to temporary files and renames them, so a
killed run continues with the missing units. Once all units of a shard exist, they are joined into its files. A
shard's folder is named by a hash of the file's size, its modification time and everything else that determines its
sequences. All processes of a machine may ask for the same store at once: one makes it under a lock, the others wait.
"""

from __future__ import annotations

import hashlib
import json
import logging
import multiprocessing
import os
import shutil
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from filelock import FileLock, Timeout
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from sft.corpus.index import BadShard, Shard
from sft.corpus.row_encoder import RowEncoder
from sft.corpus.store import ABOUT, IDS, RECORD, ROWS, SEQUENCES, WORD, SequenceWriter, ShardCounts, complete
from sft.run.stop import start_helper
from soul.errors import SoulError, one_line
from soul.files.disk_space import guarded_writes
from soul.files.whole_file import whole_file

VERSION = 2  # of the file format and of the encoding of rows
UNIT_ROWS = 2048  # rows of a unit, at least, if the shard has as many
GROUP_UNITS = 16  # units of a large row group, at most: each unit reads the group from its start to its own rows
BATCH_ROWS = 256
LOG_EVERY_S = 30.0
logger = logging.getLogger(__name__)


class TokenisingFailed(SoulError):
    """The corpus could not be tokenised."""


@dataclass(frozen=True)
class Unit:
    """Rows of a shard that are tokenised together: whole row groups, or a part of one.

    Attributes:
        groups: the row groups.
        skip: rows of the first group that belong to earlier units.
        rows: number of rows.
        first: number of the first row in the shard.
    """

    shard: Shard
    number: int
    groups: tuple[int, ...]
    skip: int
    rows: int
    first: int

    def records(self, ignored: Sequence[str] = ()) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yield the unit's rows with their numbers in the shard; only one batch is in memory.

        Args:
            ignored: columns to leave out.
        """
        seen = 0
        try:
            with pq.ParquetFile(self.shard.path, buffer_size=1 << 20) as parquet:
                batches = parquet.iter_batches(
                    BATCH_ROWS, row_groups=list(self.groups), columns=self.shard.wanted(ignored)
                )
                for batch in batches:
                    begin, end = max(0, self.skip - seen), min(batch.num_rows, self.skip + self.rows - seen)
                    if begin < end:
                        numbers = range(self.first + seen + begin - self.skip, self.first + seen + end - self.skip)
                        yield from zip(numbers, batch.slice(begin, end - begin).to_pylist(), strict=True)
                    seen += batch.num_rows
                    if seen >= self.skip + self.rows:
                        return
        except (pa.ArrowException, OSError) as error:
            raise BadShard(
                f"{self.shard.path}, row groups {self.groups}: cannot be read ({one_line(error, 200)}). "
                "Download or build the file again."
            ) from error


def units(shard: Shard) -> list[Unit]:
    """Cut a shard into units: small row groups are combined, large ones split."""
    parts: list[Unit] = []
    row = 0
    waiting: list[int] = []
    waiting_rows = 0
    for group, rows in enumerate(shard.groups):
        if rows <= UNIT_ROWS:
            waiting.append(group)
            waiting_rows += rows
        if waiting and (waiting_rows >= UNIT_ROWS or rows > UNIT_ROWS):
            parts.append(Unit(shard, len(parts), tuple(waiting), 0, waiting_rows, row))
            row += waiting_rows
            waiting, waiting_rows = [], 0
        if rows > UNIT_ROWS:
            size = max(UNIT_ROWS, -(-rows // GROUP_UNITS))
            for skip in range(0, rows, size):
                parts.append(Unit(shard, len(parts), (group,), skip, min(size, rows - skip), row + skip))
            row += rows
    if waiting_rows:
        parts.append(Unit(shard, len(parts), tuple(waiting), 0, waiting_rows, row))
    return parts


def shard_folder(shard: Shard, key: str, cache_dir: Path) -> Path:
    """The folder of a shard's tokens."""
    identity = json.dumps([VERSION, UNIT_ROWS, GROUP_UNITS, shard.path, shard.size, shard.mtime_ns, key])
    return cache_dir / "tokens" / f"{Path(shard.path).stem[:60]}-{hashlib.sha256(identity.encode()).hexdigest()[:20]}"


def tokenise(shards: Sequence[Shard], encoder: RowEncoder, cache_dir: Path) -> list[tuple[Path, ShardCounts]]:
    """Tokenise the shards that are not tokenised yet. Returns folder and counts of each shard.

    Raises:
        SoulError: a bad row, or a shard that cannot be read; finished units are kept.
    """
    key = encoder.key()
    folders = [shard_folder(shard, key, cache_dir) for shard in shards]
    counts = [complete(folder) for folder in folders]
    if not all(counts):
        cache_dir.mkdir(parents=True, exist_ok=True)
        with _lock(cache_dir / "tokens.lock"):
            missing = {folder: shard for folder, shard in zip(folders, shards, strict=True) if not complete(folder)}
            if missing:
                with guarded_writes(cache_dir, lambda: _needed_bytes(missing)):
                    _make(missing, encoder)
        counts = [complete(folder) for folder in folders]
    return [(folder, count) for folder, count in zip(folders, counts, strict=True) if count]


def _needed_bytes(shards: dict[Path, Shard]) -> float:
    """About how many bytes the tokens of these shards take, by the finished units; at least the files' size."""
    parts = [path for folder in shards for path in (folder / "parts").glob("*.json")]
    done = [counts for path in parts if (counts := ShardCounts.read(path))]
    tokenised = sum(source.rows for counts in done for source in counts.sources.values())
    total = sum(shard.rows for shard in shards.values())
    written = sum(counts.words * WORD.itemsize + counts.sequences * RECORD.itemsize for counts in done)
    # Twice: a shard's parts stay until they are joined into its files.
    return max(2.0 * written * total / max(tokenised, 1), *(float(shard.size) for shard in shards.values()))


def _lock(path: Path) -> FileLock:
    lock = FileLock(path)
    try:
        lock.acquire(timeout=0)
        lock.release()
    except Timeout:
        logger.info("another process tokenises the corpus; waiting for its lock %s", path)
    return lock


def _make(shards: dict[Path, Shard], encoder: RowEncoder) -> None:
    todo: dict[Path, set[int]] = {}
    jobs: list[tuple[Path, Unit]] = []
    plans = {folder: units(shard) for folder, shard in shards.items()}
    for folder, plan in plans.items():
        (folder / "parts").mkdir(parents=True, exist_ok=True)
        missing = [unit for unit in plan if not _part(folder, unit, "json").exists()]
        todo[folder] = {unit.number for unit in missing}
        jobs += [(folder, unit) for unit in missing]
        if not missing:
            _join(folder, plan)
    total = sum(unit.rows for plan in plans.values() for unit in plan)
    done = total - sum(unit.rows for _, unit in jobs)
    logger.info("tokenising %d shards: %s rows, %s of them done earlier", len(shards), f"{total:,}", f"{done:,}")
    with _Progress(total, done) as progress:
        for folder, unit in _encode_all(jobs, encoder):
            progress.advance(unit.rows)
            todo[folder].discard(unit.number)
            if not todo[folder]:
                _join(folder, plans[folder])


def _encode_all(jobs: list[tuple[Path, Unit]], encoder: RowEncoder) -> Iterator[tuple[Path, Unit]]:
    """Encode the units, and yield each when it is done."""
    workers = min(encoder.settings.tokenizer_workers, len(jobs))
    if workers <= 1:
        for folder, unit in jobs:
            _encode_unit(folder, unit, encoder)
            yield folder, unit
        return
    # Not forked: this process may already have threads and devices.
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(workers, mp_context=context, initializer=_start_worker, initargs=(encoder,))
    try:
        futures: dict[Future[None], tuple[Path, Unit]] = {pool.submit(_work, *job): job for job in jobs}
        for future in as_completed(futures):
            future.result()
            yield futures[future]
    except BrokenProcessPool as error:
        raise TokenisingFailed(
            "a process that tokenises the corpus was killed, perhaps because memory ran out. Finished work is kept: "
            "run the same command again with a lower data.tokenizer_workers."
        ) from error
    except BaseException:
        for process in multiprocessing.active_children():
            process.kill()  # or the pool would wait for the units under way; a half-written unit does no harm
        raise
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


_encoder: RowEncoder | None = None  # set in worker processes


def _start_worker(encoder: RowEncoder) -> None:
    global _encoder
    start_helper()  # a worker that outlived us would write to a store that another process has locked
    _encoder = encoder


def _work(folder: Path, unit: Unit) -> None:
    assert _encoder is not None
    _encode_unit(folder, unit, _encoder)


def _part(folder: Path, unit: Unit, kind: str) -> Path:
    return folder / "parts" / f"{unit.number:05d}.{kind}"


def _encode_unit(folder: Path, unit: Unit, encoder: RowEncoder) -> None:
    # Shared: a worker of a killed run may still be writing this unit.
    with ExitStack() as files:
        kinds = ("ids", "sequences", "rows")
        paths = [files.enter_context(whole_file(_part(folder, unit, kind), shared=True)) for kind in kinds]
        writer = files.enter_context(SequenceWriter(*paths))
        encoder.write(writer, unit.records(encoder.settings.ignore_columns), unit.shard.layout, unit.shard.path)
    writer.counts.write(_part(folder, unit, "json"))  # last: it marks the unit as done


def _join(folder: Path, plan: Sequence[Unit]) -> None:
    """Join the files of the units into the shard's files."""
    counts = ShardCounts()
    parts = [ShardCounts.read(_part(folder, unit, "json")) for unit in plan]
    with ExitStack() as files:
        ids, sequences, rows = (files.enter_context(open(folder / name, "wb")) for name in (IDS, SEQUENCES, ROWS))
        for unit, part in zip(plan, parts, strict=True):
            if part is None:
                raise TokenisingFailed(f"{folder}: part {unit.number} is damaged. Delete the folder and run again.")
            records = np.fromfile(_part(folder, unit, "sequences"), dtype=RECORD)
            records["offset"] += counts.words
            first = np.fromfile(_part(folder, unit, "rows"), dtype=WORD) + np.uint32(counts.sequences)
            counts.add(part)
            names = list(counts.sources)
            renumbered = np.array([names.index(name) for name in part.sources], dtype=np.uint16)
            if len(records):
                records["source"] = renumbered[records["source"]]
            sequences.write(records.tobytes())
            rows.write(first.tobytes())
            with open(_part(folder, unit, "ids"), "rb") as source:
                shutil.copyfileobj(source, ids, 1 << 24)
        for file in (ids, sequences, rows):
            file.flush()
            os.fsync(file.fileno())
    counts.write(folder / ABOUT)
    shutil.rmtree(folder / "parts")


class _Progress:
    """Progress of the tokenisation: a bar on a terminal, elsewhere a log line every LOG_EVERY_S seconds."""

    def __init__(self, total: int, done: int) -> None:
        self.total, self.done, self._before = total, done, done
        self._start = self._logged = time.monotonic()
        console = Console(stderr=True)
        columns = TextColumn("tokenising"), BarColumn(), MofNCompleteColumn(), TextColumn("rows"), TimeRemainingColumn()
        self._bar = Progress(*columns, console=console, disable=not console.is_terminal)
        self._task = self._bar.add_task("", total=total, completed=done)

    def __enter__(self) -> _Progress:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()
        self._log()

    def advance(self, rows: int) -> None:
        """Count rows that are done."""
        self.done += rows
        self._bar.advance(self._task, rows)
        if self._bar.disable and time.monotonic() - self._logged > LOG_EVERY_S:
            self._log()

    def _log(self) -> None:
        self._logged = time.monotonic()
        speed = (self.done - self._before) / max(self._logged - self._start, 1e-9)
        logger.info("tokenised %s of %s rows, %s rows/s", f"{self.done:,}", f"{self.total:,}", f"{speed:,.0f}")
