"""Tell a full disk from other failures, whichever library wrote the file, and check folders before the first write.

Python raises OSError with ENOSPC. torch and safetensors raise their own errors, which name the cause only in their text
or not at all.
"""

import errno
import os
import resource
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from soul.errors import OutOfSpace, RunFailed, SoulError

_FULL = (errno.ENOSPC, errno.EDQUOT)
_PHRASES = ("no space left on device", "disk quota exceeded", "database or disk is full")
# torch.save says "unexpected pos 576 vs 534" for any failed write.
_TORCH_WRITER = ("inline_container", "iostream error")
_PROBE_BYTES = 1 << 20
# errno -> the option of `ulimit` and the name of the shell's limit.
_LIMITS = {
    errno.EMFILE: ("-n", resource.RLIMIT_NOFILE),
    errno.EFBIG: ("-f", resource.RLIMIT_FSIZE),
    errno.ENOMEM: ("-v", resource.RLIMIT_AS),
}


@contextmanager
def guarded_writes(folder: Path, needed_bytes: Callable[[], float] | None = None) -> Iterator[None]:
    """Turn every failure that a full disk causes in this block into `OutOfSpace`.

    Args:
        folder: what the block writes to; it must exist.
        needed_bytes: returns how many bytes the block writes in total; called only if the disk is full.
    """
    try:
        yield
    except Exception as error:
        if not is_full(error, folder):
            raise
        raise out_of_space(folder, needed_bytes() if needed_bytes else None) from error


def require(folder: Path, needed_bytes: float) -> None:
    """Check that this much fits into an existing folder, before you write the first byte.

    Raises:
        OutOfSpace: it does not.
    """
    if shutil.disk_usage(folder).free < needed_bytes:
        raise out_of_space(folder, needed_bytes)


def raise_if_full(error: BaseException, folders: Sequence[Path]) -> None:
    """Raise `OutOfSpace` if a full disk caused this error, however it is wrapped; otherwise return.

    Args:
        folders: where the program writes. The error names the first one whose disk has no room.
    """
    present = [folder for folder in folders if folder.is_dir()]
    for cause in _causes(error):
        if isinstance(cause, OutOfSpace):
            raise cause
        if any(is_full(cause, folder) for folder in present):
            full = next((folder for folder in present if not _has_room(folder)), present[0])
            raise out_of_space(full) from error


def out_of_space(folder: Path, needed_bytes: float | None = None) -> OutOfSpace:
    """The error that reports a full disk; `needed_bytes` is how much the writer needs in total."""
    needs = "" if needed_bytes is None else f", needs about {max(0.1, needed_bytes / 1e9):.1f} GB"
    return OutOfSpace(
        f"no space left in {folder}{needs}. Free some space there, then run the same command to continue."
    )


def is_full(error: BaseException, folder: Path | None = None) -> bool:
    """True if a write to this folder failed because the disk is full or a quota is used up.

    Some of torch's writer errors do not say why: they count only if `folder` has no room left.
    """
    if isinstance(error, OSError) and error.errno is not None:
        return error.errno in _FULL
    text = str(error).lower()
    if any(phrase in text for phrase in _PHRASES):
        return True
    return folder is not None and any(phrase in text for phrase in _TORCH_WRITER) and not _has_room(folder)


def limit_reached(error: BaseException) -> RunFailed | None:
    """The error to raise if a limit of the shell (`ulimit`) caused this one."""
    number = errno.ENOMEM if isinstance(error, MemoryError) else getattr(error, "errno", None)
    if not isinstance(error, (OSError, MemoryError)) or number not in _LIMITS:
        return None
    option, limit = _LIMITS[number]
    now = resource.getrlimit(limit)[0]
    if now == resource.RLIM_INFINITY:
        return None
    what = f"{os.strerror(number)}: `ulimit {option}` of this shell allows {now if option == '-n' else now >> 10}"
    return RunFailed(f"{what}{'' if option == '-n' else ' KiB'}. Raise it, then run the same command again.")


def _causes(error: BaseException) -> list[BaseException]:
    """The error and its causes. Ray stores the error of another process as `cause`."""
    causes, waiting = list[BaseException](), [error]
    while waiting:
        causes.append(latest := waiting.pop(0))
        before = (getattr(latest, "cause", None), latest.__cause__, latest.__context__)
        waiting += [b for b in before if isinstance(b, BaseException) and b not in (*causes, *waiting)]
    return causes


def _has_room(folder: Path) -> bool:
    """True if a small file still fits. Unlike the number of free blocks, this respects quotas."""
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(b"\0" * _PROBE_BYTES)
            file.flush()
    except OSError as error:
        return not is_full(error)
    return True


class NotWritable(SoulError):
    """A folder cannot be created or written to."""


def check_writable(folder: str | Path, setting: str) -> None:
    """Check that files can be written to a folder, which need not exist; none is left there.

    Args:
        setting: the setting or variable that names the folder, for the error message.

    Raises:
        NotWritable: with the reason. OutOfSpace: the disk is full.
    """
    try:
        probe(Path(folder))
    except OSError as error:
        raise unwritable(f"{setting}={folder}", Path(folder), error) from error


def unwritable(name: str, folder: Path, error: OSError) -> SoulError:
    """The error to raise where an attempt to write to a folder failed; `name` is how the message refers to it."""
    if is_full(error):
        return out_of_space(folder)
    if limit := limit_reached(error):
        return limit
    return NotWritable(
        f"{name}: cannot write there ({error.strerror or error}). Choose a folder that you may write to."
    )


def probe(folder: Path) -> None:
    """Write a file to the folder, or to the nearest one above that exists, and remove it.

    Permission bits do not tell: a file system may be mounted read-only, and root may write despite the bits.

    Raises:
        OSError: the folder cannot be written to, or its name is too long.
    """
    place = Path(os.path.abspath(folder))
    nearest = next(above for above in (place, *place.parents) if os.path.lexists(above))
    if not nearest.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, f"{nearest} is a file")
    with suppress(FileNotFoundError):
        place.lstat()  # fails if the name is too long
    with tempfile.NamedTemporaryFile(dir=nearest, prefix=".soul-write-test-") as file:
        file.write(b"written")
        file.flush()
