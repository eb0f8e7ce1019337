"""A checkpoint that does not fit is refused before it is written, or leaves nothing behind."""

from __future__ import annotations

import errno
import shutil
from pathlib import Path

import pytest
import torch
from ray.exceptions import RayTaskError
from safetensors.torch import save_file

from ditto.run import checkpoint
from ditto.run.checkpoint_writer import needed_bytes, reserve_space
from soul.errors import OutOfSpace
from soul.files import disk_space


@pytest.fixture
def model(tmp_path: Path) -> str:
    folder = tmp_path / "model"
    folder.mkdir()
    save_file({"a": torch.zeros(1000, 10, dtype=torch.bfloat16)}, folder / "model.safetensors")
    return str(folder)


def saved(root: Path, step: int, size: int) -> None:
    folder = root / f"global_step_{step}" / "actor"
    folder.mkdir(parents=True)
    (folder / "shard.pt").write_bytes(b"0" * size)


def test_the_need_is_that_of_the_last_checkpoint_or_of_the_model(tmp_path: Path, model: str) -> None:
    stored = sum(file.stat().st_size for file in Path(model).iterdir())
    assert needed_bytes(tmp_path, model, lora=False) == 10_000 * 12 + stored
    assert needed_bytes(tmp_path, model, lora=True) == 10_000 * 2 + stored
    assert needed_bytes(tmp_path, "Qwen/of-the-hub", lora=False) == 0
    saved(tmp_path, 2, 500)
    saved(tmp_path, 10, 700)
    assert needed_bytes(tmp_path, model, lora=False) == 700


def free(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    usage = shutil.disk_usage("/")
    monkeypatch.setattr(shutil, "disk_usage", lambda _folder: usage._replace(free=count))


def test_too_little_room_is_seen_before_the_first_byte(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root, needed = tmp_path / "run", 200_000_000
    free(monkeypatch, needed - 1)
    said = f"no space left in {root}, needs about 0.2 GB"
    with pytest.raises(OutOfSpace, match=said), reserve_space(root, needed):
        raise AssertionError("nothing may be written")
    free(monkeypatch, needed)
    with reserve_space(root, needed):
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
    monkeypatch.setattr(disk_space, "_has_room", lambda _folder: False)
    with pytest.raises(seen), reserve_space(tmp_path, 500):
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
    monkeypatch.setattr(disk_space, "_has_room", lambda folder: folder != full)
    folders = [tmp_path / "missing", other, full]
    worker = RuntimeError("unexpected pos 576 vs 534 (inline_container.cc:672)")
    for cause in (OSError(errno.ENOSPC, "No space left on device"), worker):
        error = RayTaskError("save", f"Traceback ... {cause}", cause, "title", 1, "127.0.0.1").as_instanceof_cause()
        with pytest.raises(OutOfSpace, match=f"no space left in {full}"):
            disk_space.raise_if_full(error, folders)
    named = OutOfSpace("no space left in /x, needs about 4.0 GB")
    with pytest.raises(OutOfSpace) as raised:
        try:
            raise RuntimeError("later") from named
        except RuntimeError as error:
            disk_space.raise_if_full(error, folders)
    assert raised.value is named
    disk_space.raise_if_full(ValueError("x"), folders)
    disk_space.raise_if_full(worker, [other])  # a writer failed, and its disk has room: something else is wrong
