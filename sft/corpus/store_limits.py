"""How large the token store is, and how it is kept below a limit.

A run writes down which shards it reads, in a file that it keeps locked for as long as its process lives. Only shards
that no living process reads are removed, the longest unused ones first. The modification time of a shard's `shard.json`
tells when it was last opened.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import shutil
import uuid
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import IO

from sft.corpus.store import ABOUT

USES = "in_use"
PRUNING = "prune.lock"
GIB = 1 << 30
logger = logging.getLogger(__name__)
_held: list[IO[str]] = []  # open, and so locked, until the process ends


def folder_bytes(folder: Path) -> int:
    """Bytes of the files of a shard, finished or not. Other processes may be removing some of them."""
    size = 0
    for place, _, names in os.walk(folder):
        for name in names:
            with suppress(FileNotFoundError):
                size += os.stat(os.path.join(place, name)).st_size
    return size


def hold(cache_dir: Path, folders: Iterable[Path]) -> None:
    """Note that this process reads these shards, until it ends."""
    uses = cache_dir / USES
    uses.mkdir(parents=True, exist_ok=True)
    names = [folder.name for folder in folders]
    note = uses / f"{uuid.uuid4().hex}.json"
    partial = note.with_suffix(".partial")
    file = open(partial, "w")  # noqa: SIM115 (open for as long as the process lives)
    fcntl.flock(file, fcntl.LOCK_EX)
    file.write(json.dumps(names))
    file.flush()
    partial.rename(note)  # from here on others see it: locked and complete
    _held.append(file)
    for name in names:
        os.utime(cache_dir / "tokens" / name / ABOUT)


def prune(cache_dir: Path, limit_gib: float) -> int:
    """Remove shards that nobody reads, the longest unused first, until the store is within the limit.

    Returns:
        The bytes of the store.
    """
    with open(cache_dir / PRUNING, "w") as lock:  # all nodes of a run prune at about the same time
        fcntl.flock(lock, fcntl.LOCK_EX)
        return _prune(cache_dir, limit_gib * GIB)


def _prune(cache_dir: Path, limit: float) -> int:
    in_use = _in_use(cache_dir / USES)
    sizes = {folder: folder_bytes(folder) for folder in (cache_dir / "tokens").iterdir()}
    # Without shard.json a shard is being made, or was left half-made; only its age since then counts.
    unused = [folder for folder in sizes if folder.name not in in_use and (folder / ABOUT).exists()]
    for folder in sorted(unused, key=lambda folder: (folder / ABOUT).stat().st_mtime):
        if sum(sizes.values()) <= limit:
            break
        logger.info("data.cache_limit_gib=%g: removing %s (%.1f GiB)", limit / GIB, folder, sizes[folder] / GIB)
        (folder / ABOUT).unlink()  # first: without it the shard is incomplete for everybody
        shutil.rmtree(folder)
        del sizes[folder]
    return sum(sizes.values())


def _in_use(uses: Path) -> set[str]:
    """Names of the shards that living processes read; notes of processes that have ended are removed."""
    names: set[str] = set()
    for path in uses.glob("*.json"):
        with open(path) as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                names |= set(json.loads(file.read()))
                continue
            path.unlink()
    return names
