"""A checkpoint is whole, or its manifest says what is wrong with it."""

import json
from pathlib import Path

import pytest
import torch

from ditto.run import manifest
from ditto.run.checkpoint import NoCompleteCheckpoint, newest_complete


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "actor").mkdir()
    (tmp_path / "config.json").write_text("{}")
    with (tmp_path / "actor" / "shard.pt").open("wb") as file:
        file.truncate(manifest.HASHED_BYTES + 1)
    manifest.write(tmp_path)
    return tmp_path


def test_every_damage_is_named(folder: Path) -> None:
    shard, config = folder / "actor" / "shard.pt", folder / "config.json"
    manifest.check(folder)
    config.write_text("[]")
    with pytest.raises(manifest.DamagedCheckpoint, match=r"config.json has another content"):
        manifest.check(folder)
    config.write_text("{}")
    with shard.open("r+b") as file:
        file.truncate(3)
    with pytest.raises(manifest.DamagedCheckpoint, match="shard.pt has 3 bytes instead of 16,777,217"):
        manifest.check(folder)
    shard.unlink()
    with pytest.raises(manifest.DamagedCheckpoint, match="lacks actor/shard.pt"):
        manifest.check(folder)
    for broken in ('{"files"', '["files"]'):
        (folder / manifest.FILE).write_text(broken)
        with pytest.raises(manifest.DamagedCheckpoint, match="cannot be read"):
            manifest.check(folder)
    (folder / manifest.FILE).unlink()
    with pytest.raises(manifest.DamagedCheckpoint, match="cannot be read"):
        manifest.check(folder)


def test_without_the_files_of_all_ranks_there_is_no_manifest_and_no_resume(tmp_path: Path) -> None:
    """One of 16 nodes writes into the driver's folder; the others write on their own disks."""
    actor = tmp_path / "global_step_4" / "actor"
    actor.mkdir(parents=True)
    for part in ("extra_state", "model", "optim"):
        torch.save({}, actor / f"{part}_world_size_16_rank_0.pt")
    for use in (manifest.write, manifest.check):
        with pytest.raises(manifest.DamagedCheckpoint, match=r"rank_1.pt and 44 more files.* that all of them share"):
            use(actor.parent)
    assert not (actor.parent / manifest.FILE).exists()
    entry = {"bytes": (actor / "model_world_size_16_rank_0.pt").stat().st_size}
    listed = {"files": {"actor/model_world_size_16_rank_0.pt": entry}}  # as an earlier version wrote it
    (actor.parent / manifest.FILE).write_text(json.dumps(listed))
    with pytest.raises(NoCompleteCheckpoint, match="lacks actor/extra_state_world_size_16_rank_1.pt and 44"):
        newest_complete(tmp_path)
