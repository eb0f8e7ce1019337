"""Real trackers get the numbers of a run, and write inside the run's folder."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

# In a process of its own: trackers keep global state. argv: the tracker, the run's folder.
PROGRAM = """
import sys
from pathlib import Path
from verl.utils.tracking import Tracking
from ditto.run.run_folder import set_logger_folders
name, folder = sys.argv[1], Path(sys.argv[2])
set_logger_folders(folder, [name])
tracking = Tracking("ditto", "run", [name], {"trainer": {"logger": [name]}})
tracking.log(data={"ditto/gap": 0.5, "val-core/hitom/reward/mean@1": 0.25}, step=5)
tracking.finish()
"""


@pytest.mark.e2e
@pytest.mark.parametrize("name", ["wandb", "tensorboard", "file"])
def test_a_tracker_gets_the_numbers_and_writes_into_the_runs_folder(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if importlib.util.find_spec(name) is None and name != "file":
        pytest.skip(f"{name} is not installed")
    elsewhere, run = tmp_path / "elsewhere", tmp_path / "run"
    (elsewhere / "tmp").mkdir(parents=True)
    run.mkdir()
    for variable in ("WANDB_DIR", "WANDB_CACHE_DIR", "TENSORBOARD_DIR"):
        monkeypatch.delenv(variable, raising=False)
    for variable in ("HOME", "TMPDIR"):
        monkeypatch.setenv(variable, str(elsewhere / "tmp"))
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("PYTHONPATH", ":".join(filter(None, sys.path)))
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, name, str(run)], cwd=elsewhere, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert b"ditto/gap" in b"".join(file.read_bytes() for file in run.rglob("*") if file.is_file())
    assert not [file for file in elsewhere.rglob("*") if file.is_file() and b"ditto/gap" in file.read_bytes()]
