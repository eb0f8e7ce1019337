"""A checkpoint that does not fit is refused before it is written, or leaves nothing behind."""

import errno
import shutil
from pathlib import Path

import pytest
from ray.exceptions import RayTaskError

from ditto.run import checkpoint
from ditto.run.checkpoint_writer import reserve_space
from soul.errors import OutOfSpace
from soul.files import disk_writes


def saved(root: Path, step: int, size: int) -> None:
    folder = root / f"global_step_{step}" / "actor"
    folder.mkdir(parents=True)
    (folder / "shard.pt").write_bytes(b"0" * size)


def free(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    usage = shutil.disk_usage("/")
    monkeypatch.setattr(shutil, "disk_usage", lambda _folder: usage._replace(free=count))


def test_too_little_room_is_seen_before_the_first_byte(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As much is needed as the last checkpoint took."""
    saved(tmp_path, 2, 500)
    saved(tmp_path, 10, 700)
    free(monkeypatch, 699)
    said = f"no space left in {tmp_path}, needs about 0.1 GB"
    with pytest.raises(OutOfSpace, match=said), reserve_space(tmp_path):
        raise AssertionError("nothing may be written")
    free(monkeypatch, 700)
    with reserve_space(tmp_path):
        pass


@pytest.mark.parametrize(
    ("error", "seen"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), OutOfSpace),
        (RuntimeError("[enforce fail at inline_container.cc:672] . unexpected pos 576 vs 534"), OutOfSpace),
        (ValueError("something else"), ValueError),
    ],
)
def test_what_fails_leaves_no_half_and_the_earlier_ones_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, seen: type[Exception]
) -> None:
    saved(tmp_path, 2, 500)
    monkeypatch.setattr(disk_writes, "_has_room", lambda _folder: False)
    with pytest.raises(seen), reserve_space(tmp_path):
        folder = checkpoint.partial_dir(tmp_path) / "global_step_4"
        folder.mkdir()
        (folder / "half.pt").write_bytes(b"0" * 100)
        raise error
    assert checkpoint.saved_steps(tmp_path) == [2]
    assert not (tmp_path / checkpoint.PARTIAL).exists()


def test_a_full_disk_comes_out_of_rays_wrapping_with_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    full, other = tmp_path / "full", tmp_path / "other"
    full.mkdir()
    other.mkdir()
    monkeypatch.setattr(disk_writes, "_has_room", lambda folder: folder != full)
    folders = [tmp_path / "missing", other, full]
    worker = RuntimeError("unexpected pos 576 vs 534 (inline_container.cc:672)")
    for cause in (OSError(errno.ENOSPC, "No space left on device"), worker):
        error = RayTaskError("save", f"Traceback ... {cause}", cause, "title", 1, "127.0.0.1").as_instanceof_cause()
        with pytest.raises(OutOfSpace, match=f"no space left in {full}"):
            disk_writes.raise_if_full(error, folders)
    named = OutOfSpace("no space left in /x, needs about 4.0 GB")
    with pytest.raises(OutOfSpace) as raised:
        try:
            raise RuntimeError("later") from named
        except RuntimeError as error:
            disk_writes.raise_if_full(error, folders)
    assert raised.value is named
    disk_writes.raise_if_full(ValueError("x"), folders)
    disk_writes.raise_if_full(worker, [other])  # a writer failed, and its disk has room: something else is wrong
