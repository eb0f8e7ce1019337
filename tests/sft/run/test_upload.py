"""A copy of a checkpoint is complete or has no manifest, and the next call completes it."""

from __future__ import annotations

from pathlib import Path

import fsspec
import pytest
from omegaconf import OmegaConf

from ditto.run import manifest
from ditto.run.checkpoint import partial_dir, publish
from sft.run.upload import UploadCheckpoints, UploadFailed


def save(root: Path, step: int, content: str = "weights") -> Path:
    folder = partial_dir(root) / f"global_step_{step}"
    (folder / "actor").mkdir(parents=True)
    for name in ("config.json", "model.safetensors", "actor/optim.pt"):
        (folder / name).write_text(f"{content} {step} {name}")
    return publish(root, step)


def uploader(url: str) -> UploadCheckpoints:
    return UploadCheckpoints(OmegaConf.create({"trainer": {"upload_to": url}}))


def fetched(url: str, folder: Path) -> Path:
    store, path = fsspec.core.url_to_fs(url)
    store.get(path, str(folder), recursive=True)
    return folder


def test_copies_are_whole_and_an_interrupted_one_is_made_up_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, run = "memory://bucket/run", tmp_path / "run"
    callback = uploader(url)
    first, copies = save(run, 4), 0

    def fails(*_: object) -> None:
        nonlocal copies
        copies += 1
        if copies > 2:
            raise ConnectionResetError("the store hung up")
        put(*_)

    put = callback.store.put_file
    with monkeypatch.context() as patch:
        patch.setattr(callback.store, "put_file", fails)
        with pytest.raises(UploadFailed, match="global_step_4 could not be copied to memory://bucket/run: the store"):
            callback.on_save(None, 4, str(first))
    assert not callback.store.exists("/bucket/run/global_step_4/manifest.json")
    uploader(url).on_save(None, 8, str(save(run, 8)))
    for step in (4, 8):
        manifest.check(fetched(f"{url}/global_step_{step}", tmp_path / f"copy_{step}"))

    # The same step once more, after the run went back to an earlier checkpoint.
    (run / "global_step_8").rename(run / "global_step_8.damaged")
    uploader(url).on_save(None, 8, str(save(run, 8, "other weights")))
    copy = fetched(f"{url}/global_step_8", tmp_path / "again")
    manifest.check(copy)
    assert (copy / "model.safetensors").read_text().startswith("other")
