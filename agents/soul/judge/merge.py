"""Put the judge's answers and bills of several folders into one: of several nodes, or of several evaluations.

    FOLDER/judge_cache/<node>.sqlite    answers, one file for each machine; a folder of such files may be named itself
    FOLDER/usage.json                   the bill

Nothing in the folders is changed. Of answers to one question, the one from the first folder stays. A bill is counted
once, however often it is named: a merged bill lists the hashes of those that it was made of.
"""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from soul.errors import SoulError
from soul.files.json_object import read_object
from soul.judge.cache import Cache
from soul.judge.ledger import Ledger

CACHE, BILL = "judge_cache", "usage.json"


class BadMerge(SoulError):
    """Folders cannot be merged."""


@dataclass
class MergedJudge:
    """What a merge did: `repeated` and `conflicts` count answers that were there already, with this text or another."""

    answers: int = 0
    repeated: int = 0
    conflicts: int = 0
    bills: int = 0
    repeated_bills: int = 0

    def __str__(self) -> str:
        return (
            f"{self.answers:,} answers ({self.repeated:,} further copies left out); {self.conflicts:,} conflicts, "
            f"where the first folder's answer stays; {self.bills:,} bills ({self.repeated_bills:,} left out because "
            "they were already counted)"
        )


def merge_judges(folders: Sequence[Path], out: Path) -> MergedJudge:
    """Merge the caches and the bills of these folders.

    Args:
        out: its cache gets the name of this machine, which reads it from there.

    Raises:
        BadMerge: two bills overlap, or one is damaged. BadCache: a file is not a cache.
    """
    merged = MergedJudge()
    files = [file for folder in folders for file in _caches(folder)]
    if files:
        cache = Cache(out / CACHE / f"{platform.node()}.sqlite")
        try:
            for file in files:
                added, repeated, conflicts = cache.take_from(file)
                merged.answers += added
                merged.repeated += repeated
                merged.conflicts += conflicts
        finally:
            cache.close()
    _merge_bills([folder / BILL for folder in folders if (folder / BILL).is_file()], out, merged)
    return merged


@contextmanager
def merged_folder(out: Path) -> Iterator[Path]:
    """Write a merge to a folder beside `out`, which takes its place at the end: a refused merge leaves nothing.

    Yields:
        The folder to write to.

    Raises:
        BadMerge: `out` holds something already; a merge overwrites nothing.
    """
    if out.exists() and any(out.iterdir()):
        raise BadMerge(f"--out {out} is not empty. Name a new folder.")
    out = out.absolute()
    out.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix=f".{out.name}-", dir=out.parent) as scratch:
        written = Path(scratch) / out.name
        written.mkdir()
        yield written
        written.replace(out)


def _caches(folder: Path) -> list[Path]:
    inside = folder / CACHE
    return sorted((inside if inside.is_dir() else folder).glob("*.sqlite"))


def _merge_bills(files: Sequence[Path], out: Path, merged: MergedJudge) -> None:
    parts = {file: _parts(file) for file in files}
    counted: dict[str, Path] = {}
    ledger = Ledger()
    for file in sorted(files, key=lambda file: -len(parts[file])):  # a merged bill before those that it was made of
        known = parts[file] & counted.keys()
        if known == parts[file]:
            merged.repeated_bills += 1
            continue
        if known:
            raise BadMerge(
                f"{file} and {counted[min(known)]} were both merged from one bill, which would be counted twice. Name "
                "the folders that they were merged from."
            )
        ledger.merge(_bill(file))
        counted |= dict.fromkeys(parts[file], file)
        merged.bills += 1
    if files:
        ledger.save(out / BILL, merged_from=sorted(counted))


def _parts(file: Path) -> set[str]:
    """The hashes of the bills that this one was merged from, or of this one."""
    parts = read_object(file, BadMerge, "Copy it again, or leave its folder out.").get("merged_from")
    return set(parts) if isinstance(parts, list) else {hashlib.sha256(file.read_bytes()).hexdigest()}


def _bill(file: Path) -> Ledger:
    try:
        return Ledger.load(file)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise BadMerge(
            f"{file} is no bill of the judges ({error!r}). Copy it again, or leave its folder out."
        ) from error
