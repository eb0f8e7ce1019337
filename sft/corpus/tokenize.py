"""Tokenise a corpus: once, file by file, with a process for each core.

The rows of a file are encoded in units of a few thousand. A unit does not depend on the number of processes, so the
tokens do not either. The folder of a file's tokens is named by a hash of its size, its modification time and everything
else that determines its sequences. Any number of processes, on any number of nodes, may ask for the same tokens at
once: each takes files that no other one has locked.
"""

import hashlib
import json
import logging
import multiprocessing
import os
import shutil
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any

import pyarrow as pa
from filelock import FileLock, Timeout

from sft.corpus.row_encoder import RowEncoder
from sft.corpus.store import ABOUT, FEATURES, TOKENS, SequenceWriter, ShardCounts, complete, digest
from sft.encode.layouts import READ, Layout, check_row, find_layout, layout_columns
from sft.formats.reading import columns_of, read_batches, records
from sft.run.stop import start_helper
from soul.errors import SoulError
from soul.files.disk_writes import guarded_writes

VERSION = 9  # of the file format and of the encoding of rows
UNIT_ROWS, UNIT_BYTES = 2048, 64 << 20  # rows or bytes that make a unit
TELL_S = 30.0  # between two log lines
logger = logging.getLogger(__name__)


class TokenisingFailed(SoulError):
    """The corpus could not be tokenised."""


@dataclass(frozen=True)
class Unit:
    """Rows that are encoded together, and the number of the first one in the file."""

    first: int
    batches: list[pa.RecordBatch]


Encoded = tuple[pa.Table, ShardCounts]
_work: Callable[[Unit], Encoded]  # in a process of the pool


def tokenise(files: Sequence[Path], encoder: RowEncoder, cache_dir: Path) -> list[tuple[Path, ShardCounts]]:
    """Tokenise the files that are not tokenised yet. Returns the folder of the tokens and the counts of each file."""
    key = encoder.key()
    folders = [tokens_folder(file, key, cache_dir) for file in files]
    left = {folder: file for folder, file in zip(folders, files, strict=True) if not complete(folder)}
    if left:
        (cache_dir / "tokens").mkdir(parents=True, exist_ok=True)
        logger.info("tokenising %d of %d files", len(left), len(files))
        with guarded_writes(cache_dir, lambda: 2.0 * sum(file.stat().st_size for file in left.values())):
            for patience in (0, -1):  # first what nobody has, then wait for what others do
                for folder, file in list(left.items()):
                    try:
                        with FileLock(f"{folder}.lock", timeout=patience):
                            if not complete(folder):
                                _make(file, folder, encoder)
                    except Timeout:
                        logger.info("another process tokenises %s", file)
                        continue
                    del left[folder]
    found = [complete(folder) for folder in folders]
    return [(folder, counts) for folder, counts in zip(folders, found, strict=True) if counts]


def tokens_folder(file: Path, key: str, cache_dir: Path) -> Path:
    """The folder of a file's tokens."""
    stat = file.stat()
    identity = json.dumps([VERSION, UNIT_ROWS, UNIT_BYTES, str(file), stat.st_size, stat.st_mtime_ns, key])
    return cache_dir / "tokens" / f"{file.stem[:60]}-{hashlib.sha256(identity.encode()).hexdigest()[:20]}"


def _make(file: Path, folder: Path, encoder: RowEncoder) -> None:
    """Tokenise one file."""
    columns = columns_of(file)
    layout = find_layout(columns, str(file))
    wanted = [*layout_columns(layout, columns), *(name for name in READ if name in columns)]
    shutil.rmtree(folder, ignore_errors=True)  # of a process that was killed
    folder.mkdir(parents=True)
    start = told = time.monotonic()
    counts, tokens = ShardCounts(), folder / TOKENS
    encoded = _in_processes(partial(_encode, encoder, file, layout), _units(file, wanted))
    with tokens.open("wb") as sink:
        with pa.ipc.new_stream(sink, FEATURES.arrow_schema) as stream:
            for table, part in encoded:
                stream.write_table(table)
                counts.add(part)
                if time.monotonic() - told > TELL_S:
                    told = time.monotonic()
                    logger.info("tokenising %s: %s sequences so far", file, f"{counts.sequences:,}")
        os.fsync(sink.fileno())
    counts.digest, counts.bytes = digest(tokens), tokens.stat().st_size
    counts.write(folder / ABOUT)
    rows, seconds = sum(source.rows for source in counts.sources.values()), time.monotonic() - start
    logger.info("tokenised %s: %s rows, %s rows/s", file, f"{rows:,}", f"{rows / max(seconds, 1e-9):,.0f}")


def _units(file: Path, columns: Sequence[str]) -> Iterator[Unit]:
    batches: list[pa.RecordBatch] = []
    first = rows = size = 0
    for batch in read_batches(file, columns):
        batches.append(batch)
        rows, size = rows + batch.num_rows, size + batch.nbytes
        if rows >= UNIT_ROWS or size >= UNIT_BYTES:
            yield Unit(first, batches)
            batches, first, rows, size = [], first + rows, 0, 0
    if batches:
        yield Unit(first, batches)


def _encode(encoder: RowEncoder, file: Path, layout: Layout, unit: Unit) -> Encoded:
    """Encode one unit."""

    def rows() -> Iterator[tuple[int, dict[str, Any]]]:
        number = unit.first
        for batch in unit.batches:
            for record in records(batch, str(file), number):
                check_row(record, f"{file}, row {number}")
                yield number, record
                number += 1

    writer = SequenceWriter()
    encoder.write(writer, rows(), layout, str(file))
    return writer.table(), writer.counts


def _in_processes(work: Callable[[Unit], Encoded], units: Iterator[Unit]) -> Iterator[Encoded]:
    """The results for all units, in order; a few units are in memory at a time."""
    head, count = list(islice(units, 2)), cores()
    if len(head) < 2 or count < 2:
        yield from map(work, chain(head, units))
        return
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # a process for each core: threads would compete for them
    # Forked, so that each process has the tokenizer, which takes long to send.
    pool = ProcessPoolExecutor(count, multiprocessing.get_context("fork"), _start, (work,))
    pending: deque[Future[Encoded]] = deque()
    try:
        for unit in chain(head, units):
            pending.append(pool.submit(_do, unit))
            if len(pending) > 2 * count:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
    except BrokenProcessPool as error:
        raise TokenisingFailed(
            "a process that tokenises the corpus was killed, perhaps because memory ran out. Finished files are kept: "
            "run the same command again, with fewer cores (taskset) if memory is short."
        ) from error
    finally:
        pool.shutdown(cancel_futures=True)


def cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0))


def _start(work: Callable[[Unit], Encoded]) -> None:
    global _work
    _work = work
    start_helper()


def _do(unit: Unit) -> Encoded:
    return _work(unit)
