"""Tokenise a corpus with `datasets.map`: once, with several processes, file by file.

The rows of a file are first written as arrow batches beside its tokens; a unit is a few thousand of them. `map` gives
the units to its processes and writes their sequences, in order. A unit does not depend on the number of processes, so
the tokens do not either. The folder of a file is named by a hash of the file's size, its modification time and
everything else that determines its sequences. Any number of processes, on any number of nodes, may ask for the same
tokens at once: each takes files that no other one has locked.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import datasets
import pyarrow as pa
from filelock import FileLock, Timeout

from sft.corpus.columns import READ, check_row, without
from sft.corpus.row_encoder import RowEncoder
from sft.corpus.store import ABOUT, FEATURES, SequenceWriter, ShardCounts, complete, digest
from sft.encode.layouts import Layout, find_layout, layout_columns
from sft.formats.reading import columns_of, has_schema, read_batches, records
from sft.run.stop import die_with_parent
from soul.errors import SoulError
from soul.files.disk_space import guarded_writes

VERSION = 7  # of the file format and of the encoding of rows
UNIT_ROWS, UNIT_BYTES = 2048, 64 << 20  # rows or bytes that make a unit
SHOWN = 20  # log lines per file, about
logger = logging.getLogger(__name__)
_owner = 0  # while it tokenises, this process: the processes that `datasets` forks must not outlive it
_forked_by_main = False


def _before_fork() -> None:
    global _forked_by_main
    _forked_by_main = threading.current_thread() is threading.main_thread()


def _after_fork() -> None:
    # Not for a process that a thread has forked, in place of one that has died: it would die with that thread.
    global _owner
    owner, _owner = _owner, 0
    if owner and _forked_by_main:
        die_with_parent(owner)


os.register_at_fork(before=_before_fork, after_in_child=_after_fork)


class TokenisingFailed(SoulError):
    """The corpus could not be tokenised."""


@dataclass(frozen=True)
class Unit:
    """Rows that are tokenised together: some of the batches of a file, and the number of the first row."""

    batches: tuple[int, int]
    first: int


@dataclass(frozen=True)
class Job:
    """A corpus file that is being tokenised. Its processes get a copy.

    Attributes:
        folder: where its tokens go.
    """

    file: Path
    folder: Path
    layout: Layout
    encoder: RowEncoder

    @property
    def staged(self) -> Path:
        """The rows of the file as arrow batches."""
        return self.folder / "rows.staged"

    def counts_of(self, unit: Unit) -> Path:
        """The file of a unit's counts."""
        return self.folder / "counts" / f"{unit.first:012d}.json"

    def rows(self, unit: Unit) -> Iterator[tuple[int, dict[str, Any]]]:
        """The rows of a unit with their numbers in the file.

        Raises:
            UnsupportedColumn: a row of a JSON file has one.
        """
        number, ignored, schema = unit.first, self.encoder.settings.ignore_columns, has_schema(self.file)
        with pa.memory_map(str(self.staged)) as source, pa.ipc.open_file(source) as batches:
            for place in range(*unit.batches):
                for record in records(batches.get_batch(place), str(self.file), number):
                    if not schema:
                        check_row(record, f"{self.file}, row {number}", ignored)
                    yield number, without(record, ignored) if ignored else record
                    number += 1


def tokenise(files: Sequence[Path], encoder: RowEncoder, cache_dir: Path) -> list[tuple[Path, ShardCounts]]:
    """Tokenise the files that are not tokenised yet. Returns the folder of the tokens and the counts of each file.

    Raises:
        SoulError: a bad row, or a file that cannot be read; files that are finished stay so.
    """
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
    start, settings = time.monotonic(), encoder.settings
    columns = columns_of(file)
    layout = find_layout(columns, str(file))
    wanted = [*layout_columns(layout, columns), *(name for name in READ if name in columns)]
    if not (folder / "counts").is_dir():  # with it, `map` goes on from the parts that a killed process has finished
        shutil.rmtree(folder, ignore_errors=True)
        (folder / "counts").mkdir(parents=True)
    job = Job(file, folder, layout, encoder)
    units = list(_staged(job, [name for name in wanted if name not in settings.ignore_columns]))
    tokens = _mapped(job, units) if units else datasets.Dataset(FEATURES.arrow_schema.empty_table())
    counts = ShardCounts()
    for unit in units:
        part = ShardCounts.read(job.counts_of(unit))
        if part is None:
            raise TokenisingFailed(f"{job.counts_of(unit)} is damaged. Delete {folder} and run again.")
        counts.add(part)
    counts.digest = digest(tokens, list(counts.sources))
    for cached in tokens.cache_files:
        _sync(path := Path(cached["filename"]))
        counts.files[path.name] = path.stat().st_size
    counts.write(folder / ABOUT)
    job.staged.unlink(missing_ok=True)
    shutil.rmtree(folder / "counts")
    for leftover in folder.iterdir():  # of a process that was killed
        if leftover.name not in (ABOUT, *counts.files):
            leftover.unlink()
    rows, seconds = sum(source.rows for source in counts.sources.values()), time.monotonic() - start
    logger.info("tokenised %s: %s rows, %s rows/s", file, f"{rows:,}", f"{rows / max(seconds, 1e-9):,.0f}")


def _staged(job: Job, columns: Sequence[str]) -> Iterator[Unit]:
    """Write the rows of a file as arrow batches, and say which of them make a unit."""
    writer = None
    begin = number = row = first = size = 0
    with pa.OSFile(str(job.staged), "wb") as sink:
        for batch in read_batches(job.file, columns):
            writer = writer or pa.ipc.new_file(sink, batch.schema)
            writer.write_batch(batch)
            number, row, size = number + 1, row + batch.num_rows, size + batch.nbytes
            if row - first >= UNIT_ROWS or size >= UNIT_BYTES:
                yield Unit((begin, number), first)
                begin, first, size = number, row, 0
        if writer:
            writer.close()
    if begin < number:
        yield Unit((begin, number), first)


def _mapped(job: Job, units: Sequence[Unit]) -> datasets.Dataset:
    """The sequences of all units."""
    show = datasets.enable_progress_bars if sys.stderr.isatty() else datasets.disable_progress_bars
    show()
    workers = min(job.encoder.settings.workers, len(units))
    global _owner
    try:
        if workers > 1:
            _owner = os.getpid()
            os.environ["TOKENIZERS_PARALLELISM"] = "false"  # a process for each core: threads would compete for them
        return datasets.Dataset.from_dict({"unit": range(len(units))}).map(
            _encode_unit,
            batched=True,
            batch_size=1,
            num_proc=workers if workers > 1 else None,
            fn_kwargs={"units": units, "job": job},
            features=FEATURES,
            remove_columns="unit",
            cache_file_name=str(job.folder / "tokens.arrow"),
            new_fingerprint=job.folder.name[-20:],
            desc=f"tokenising {job.file.name}",
        )
    except RuntimeError as error:
        if "abruptly died" not in str(error):  # as `datasets` says it
            raise
        raise TokenisingFailed(
            "a process that tokenises the corpus was killed, perhaps because memory ran out. Finished files are kept: "
            "run the same command again with a lower data.tokenizer_workers."
        ) from error
    finally:
        _owner = 0


def _encode_unit(batch: dict[str, list[int]], units: Sequence[Unit], job: Job) -> pa.Table:
    """Encode one unit, and write its counts."""
    (number,) = batch["unit"]
    writer, unit = SequenceWriter(), units[number]
    job.encoder.write(writer, job.rows(unit), job.layout, str(job.file))
    writer.counts.write(job.counts_of(unit))
    if number % max(1, len(units) // SHOWN) == 1:  # a log has no progress bar
        done = sum(1 for _ in job.counts_of(unit).parent.iterdir())
        logger.info("%s: %d of %d parts are tokenised", job.file, done, len(units))
    return writer.table()


def _sync(file: Path) -> None:
    descriptor = os.open(file, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)
