"""Tokenise a corpus into its token store: once, with several processes.

A shard is cut into units of a few thousand rows. A worker writes a unit to temporary files and renames them, so a
killed run continues with the missing units. Once all units of a shard exist, they are joined into its files. A
shard's folder is named by a hash of the file's size, its modification time and everything else that determines its
sequences. Any number of processes, on any number of nodes, may ask for the same store at once: they share its units
(sft/corpus/claims.py), and the result is the same however they are shared.
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
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from sft.corpus.claims import UnitShares
from sft.corpus.columns import check_row, without
from sft.corpus.index import Shard
from sft.corpus.row_encoder import RowEncoder
from sft.corpus.store import ABOUT, IDS, RECORD, ROWS, SEQUENCES, WORD, SequenceWriter, ShardCounts, complete
from sft.formats.reading import read_batches
from sft.run.stop import start_helper
from soul.errors import SoulError
from soul.files.disk_space import guarded_writes
from soul.files.whole_file import whole_file

VERSION = 6  # of the file format and of the encoding of rows
UNIT_ROWS = 2048  # rows of a unit, at least, if the shard has as many
UNIT_BYTES = 64 << 20  # of text that makes a unit, however few rows it has
GROUP_UNITS = 16  # units of what must be read from its start (a large row group, a compressed file), about
LOG_EVERY_S = 30.0
POLL_S = 1.0  # how often to look whether other processes have finished
END = object()  # no more units
logger = logging.getLogger(__name__)


class TokenisingFailed(SoulError):
    """The corpus could not be tokenised."""


@dataclass(frozen=True)
class Unit:
    """Rows of a shard that are tokenised together: whole groups of its contents, or a part of one.

    Attributes:
        groups: the groups, consecutive.
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

        Raises:
            UnsupportedColumn: a row of a JSON file has one.
        """
        seen = 0
        wanted, has_schema = self.shard.wanted(ignored), self.shard.contents.has_schema
        for batch in read_batches(Path(self.shard.path), self.shard.contents, self.groups, wanted):
            begin, end = max(0, self.skip - seen), min(batch.rows, self.skip + self.rows - seen)
            if begin < end:
                numbers = range(self.first + seen + begin - self.skip, self.first + seen + end - self.skip)
                for number, record in zip(numbers, batch.records(begin, end), strict=True):
                    if not has_schema:
                        check_row(record, f"{self.shard.path}, row {number}", ignored)
                    yield number, without(record, ignored) if ignored else record
            seen += batch.rows
            if seen >= self.skip + self.rows:
                return


def units(shard: Shard) -> list[Unit]:
    """Cut a shard into units: small groups are combined, large ones split."""
    parts: list[Unit] = []
    row = 0
    waiting: list[int] = []
    waiting_rows = waiting_bytes = 0
    most_rows, most_bytes = _unit_sizes(shard)
    for group, rows in enumerate(shard.contents.groups):
        large = rows > most_rows
        if not large:
            waiting.append(group)
            waiting_rows += rows
            waiting_bytes += shard.contents.bytes_of(group)
        if waiting and (waiting_rows >= most_rows or waiting_bytes >= most_bytes or large):
            parts.append(Unit(shard, len(parts), tuple(waiting), 0, waiting_rows, row))
            row += waiting_rows
            waiting, waiting_rows, waiting_bytes = [], 0, 0
        if large:
            size = max(UNIT_ROWS, -(-rows // GROUP_UNITS))
            for skip in range(0, rows, size):
                parts.append(Unit(shard, len(parts), (group,), skip, min(size, rows - skip), row + skip))
            row += rows
    if waiting_rows:
        parts.append(Unit(shard, len(parts), tuple(waiting), 0, waiting_rows, row))
    return parts


def _unit_sizes(shard: Shard) -> tuple[int, int]:
    """Rows and bytes that make a unit; more in a compressed file, which every unit reads from its start."""
    contents = shard.contents
    if contents.compression is None:
        return UNIT_ROWS, UNIT_BYTES
    size = contents.edges[-1] - contents.edges[0]
    return max(UNIT_ROWS, contents.rows // GROUP_UNITS), max(UNIT_BYTES, size // GROUP_UNITS)


def shard_folder(shard: Shard, key: str, cache_dir: Path) -> Path:
    """The folder of a shard's tokens."""
    identity = json.dumps([VERSION, UNIT_ROWS, UNIT_BYTES, GROUP_UNITS, shard.path, shard.size, shard.mtime_ns, key])
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
        missing = {folder: shard for folder, shard, done in zip(folders, shards, counts, strict=True) if not done}
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


@dataclass(frozen=True)
class ShardWork:
    """A shard that is being tokenised: its units, and how to put them together."""

    folder: Path
    plan: Sequence[Unit]

    def missing(self) -> list[int]:
        """Numbers of the units without a finished part; none if the shard is complete."""
        parts = {path.name for path in (self.folder / "parts").glob("*.json")}
        missing = [unit.number for unit in self.plan if _part(self.folder, unit, "json").name not in parts]
        # In this order: the parts are removed after the shard is complete.
        return [] if missing and complete(self.folder) else missing

    def lacks(self, number: int) -> bool:
        """Whether a unit has no finished part."""
        return not _part(self.folder, self.plan[number], "json").exists() and not complete(self.folder)

    def finish(self) -> None:
        """Join the parts."""
        if not complete(self.folder):
            _join(self.folder, self.plan)


def _make(shards: dict[Path, Shard], encoder: RowEncoder) -> None:
    work = [ShardWork(folder, units(shard)) for folder, shard in shards.items()]
    for shard in work:
        (shard.folder / "parts").mkdir(parents=True, exist_ok=True)
    total = sum(unit.rows for shard in work for unit in shard.plan)
    left = sum(shard.plan[number].rows for shard in work for number in shard.missing())
    logger.info("tokenising %d shards: %s rows, %s of them done earlier", len(work), f"{total:,}", f"{total - left:,}")
    with _Progress(total, total - left) as progress:

        def count_others(shard: ShardWork, numbers: list[int]) -> None:
            progress.advance(sum(shard.plan[number].rows for number in numbers), own=False)

        shares = UnitShares(work, count_others)
        try:
            for shard, number in _encode_all(shares, encoder, sum(len(shard.missing()) for shard in work)):
                progress.advance(shard.plan[number].rows)
                shares.done(shard, number)
        finally:
            shares.close()


def _encode_all(shares: UnitShares[ShardWork], encoder: RowEncoder, most: int) -> Iterator[tuple[ShardWork, int]]:
    """Encode this process's share of the units, and yield each when it is done."""
    workers = min(encoder.settings.workers, most)
    if workers <= 1:
        for job in shares:
            if job is None:
                time.sleep(POLL_S)
                continue
            shard, number = job
            _encode_unit(shard.folder, shard.plan[number], encoder)
            yield job
        return
    # Not forked: this process may already have threads and devices.
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(workers, mp_context=context, initializer=_start_worker, initargs=(encoder,))
    try:
        yield from _by_pool(shares, pool, workers)
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


def _by_pool(shares: UnitShares[ShardWork], pool: ProcessPoolExecutor, workers: int) -> Iterator[tuple[ShardWork, int]]:
    """Keep the workers busy, with no more claims than that needs: the rest is for other nodes."""
    running: dict[Future[None], tuple[ShardWork, int]] = {}
    jobs = iter(shares)
    job = next(jobs, END)
    while running or job is not END:
        while isinstance(job, tuple) and len(running) < workers + 1:
            shard, number = job
            running[pool.submit(_work, shard.folder, shard.plan[number])] = job
            job = next(jobs, END)
        if not running:
            time.sleep(POLL_S)  # other processes do all that is left
        done, _ = wait(running, timeout=POLL_S, return_when=FIRST_COMPLETED) if running else ((), ())
        for future in done:
            future.result()
            yield running.pop(future)
        if job is None:
            job = next(jobs, END)


_encoder: RowEncoder | None = None  # set in worker processes


def _start_worker(encoder: RowEncoder) -> None:
    global _encoder
    start_helper()  # a worker that outlived us would write to a store that another process has locked
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # a worker for each core: threads would compete for them
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
    counts.digest = _digest(folder / IDS, folder / SEQUENCES)
    counts.write(folder / ABOUT)
    shutil.rmtree(folder / "parts")


def _digest(*files: Path) -> str:
    """A hash of the contents of files."""
    hashes = []
    for path in files:
        with path.open("rb") as file:
            hashes.append(hashlib.file_digest(file, "sha256").hexdigest())
    return hashlib.sha256("".join(hashes).encode()).hexdigest()


class _Progress:
    """Progress of the tokenisation: a bar on a terminal, elsewhere a log line every LOG_EVERY_S seconds."""

    def __init__(self, total: int, done: int) -> None:
        self.total, self.done, self._own = total, done, 0
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

    def advance(self, rows: int, own: bool = True) -> None:
        """Count rows that are done, by this process (`own`) or another one."""
        self.done += rows
        self._own += rows if own else 0
        self._bar.advance(self._task, rows)
        if self._bar.disable and time.monotonic() - self._logged > LOG_EVERY_S:
            self._log()

    def _log(self) -> None:
        self._logged = time.monotonic()
        speed = self._own / max(self._logged - self._start, 1e-9)
        shown = tuple(f"{number:,.0f}" for number in (self.done, self.total, self._own, speed))
        logger.info("tokenised %s of %s rows, %s of them here with %s rows/s", *shown)
