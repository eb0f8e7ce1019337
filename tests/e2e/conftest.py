"""What the end-to-end tests share: the demo's stories and a quickly warm-started tiny model."""

from pathlib import Path

import pytest
from filelock import FileLock

from tests.e2e.run import warm_world


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Path:
    """A folder with train.parquet, heldback.parquet and warm/ (a model that is right now and then); made once."""
    base = tmp_path_factory.getbasetemp()
    folder = (base if worker_id == "master" else base.parent) / "world"  # pytest-xdist: every worker has a folder below
    with FileLock(f"{folder}.lock"):
        if not (folder / "done").exists():
            warm_world(folder, steps=120)
            (folder / "done").touch()
    return folder
