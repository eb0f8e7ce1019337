"""A full disk is named as such, whichever library met it."""

import errno
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from soul.errors import OutOfSpace
from soul.files.disk_writes import guarded_writes
from tests.small_disk import small_disk

BIG = {"x": torch.zeros(1_000_000)}  # 4 MB

WRITERS: dict[str, Callable[[Path], object]] = {
    "torch": lambda folder: torch.save(BIG, folder / "x.pt"),
    "safetensors": lambda folder: save_file(BIG, folder / "x.safetensors"),
    "python": lambda folder: (folder / "x.txt").write_bytes(b"a" * 4_000_000),
}


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 2 MB."""
    with small_disk(tmp_path / "disk", megabytes=2) as disk:
        yield disk


@pytest.mark.parametrize("write", WRITERS.values(), ids=WRITERS)
def test_a_full_disk_is_named(disk: Path, write: Callable[[Path], object]) -> None:
    with pytest.raises(OutOfSpace) as full, guarded_writes(disk, lambda: 4e9):
        write(disk)
    assert str(full.value).startswith(f"no space left in {disk}, needs about 4.0 GB")
    assert full.value.exit_code == 1


def test_other_failures_stay_what_they_are(tmp_path: Path) -> None:
    (tmp_path / "x.txt").mkdir()
    with pytest.raises(IsADirectoryError), guarded_writes(tmp_path):
        WRITERS["python"](tmp_path)
    with pytest.raises(RuntimeError, match="iostream"), guarded_writes(tmp_path):
        raise RuntimeError("basic_ios::clear: iostream error")  # there is room: something else is wrong
    with pytest.raises(OutOfSpace), guarded_writes(tmp_path):
        raise OSError(errno.EDQUOT, "Disk quota exceeded")
