"""The tables of sessions: which sessions, which texts, and that real trackers keep them inside the run's folder."""

from __future__ import annotations

import importlib
import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from ditto.run import trackers
from ditto.run.trackers import COLUMNS, log_sessions, table_rows
from ditto.settings import RunSettings
from soul.record import SessionRecord
from tests.soul.figures.made_up_runs import session

SETTINGS = RunSettings(dir="unused", logged_sessions=3)
# In a process of its own: trackers keep global state. argv: the tracker, the run's folder.
PROGRAM = """
import sys
from pathlib import Path
from verl.utils.tracking import Tracking
from ditto.run.trackers import set_logger_folders
from ditto.run.trackers import log_sessions
from ditto.settings import RunSettings
from tests.soul.figures.made_up_runs import session
name, folder = sys.argv[1], Path(sys.argv[2])
set_logger_folders(folder, [name], "ditto")
tracking = Tracking("ditto", "run", [name], {"trainer": {"logger": [name]}})
settings = RunSettings(dir=str(folder), logged_sessions=2)
log_sessions(tracking.logger, settings, 5, [session("hitom", 5, 7, 0, (0.25, 0.75), feedback="SAY WHERE IT IS")])
tracking.log(data={"ditto/gap": 0.5, "val-core/hitom/reward/mean@1": 0.25}, step=5)
tracking.finish()
"""
OFFLINE = {"WANDB_MODE": "offline", "SWANLAB_MODE": "offline"}


def sessions(*rewards: float | None) -> list[SessionRecord]:
    made = [session("hitom", 5, number, 0, (reward or 0.0, 1.0)) for number, reward in enumerate(rewards)]
    for record, reward in zip(made, rewards, strict=True):
        record.draft.reward = reward
    return made


def test_rows_go_from_the_worst_draft_to_the_best_and_leave_failures_out() -> None:
    rewards = [dict(zip(COLUMNS, row, strict=True))["reward_draft"] for row in table_rows(sessions(0.9, None, 0.1), 3)]
    assert rewards == [0.1, 0.9]
    rewards = [row[COLUMNS.index("reward_draft")] for row in table_rows(sessions(*(i / 10 for i in range(10))), 3)]
    assert rewards == [0.0, 0.4, 0.9]
    assert len(table_rows(sessions(0.5, 0.6), 1)) == 1 and table_rows([], 3) == []


def test_texts_are_the_policys_turns_and_are_never_too_long_or_broken() -> None:
    record = sessions(0.5)[0]
    record.draft.seats = {
        "Ann": [{"role": "user", "content": "secret"}, {"role": "assistant", "content": "hello \ud800"}],
        "Bob": [{"role": "assistant", "content": "x" * 9000}],
    }
    record.refined = None
    row = dict(zip(COLUMNS, table_rows([record], 1)[0], strict=True))
    assert row["draft"].startswith("Ann: hello ?\n\nBob: xxx") and len(row["draft"]) == trackers.TEXT_CHARS + 4
    assert row["refined"] == "" and row["reward_refined"] is None and "secret" not in json.dumps(row)


def test_it_is_written_every_few_steps_and_a_failing_tracker_ends_no_run(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    steps: list[int] = []

    def log(_: object, step: int) -> None:
        steps.append(step)
        if step == 10:
            raise ConnectionError("no route")

    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(log=log, Table=dict))
    for step in range(1, 11):
        log_sessions({"console": 0, "mlflow": 0, "wandb": 0}, SETTINGS, step, sessions(0.5))
    assert steps == [5, 10] and caplog.text.count("wandb did not take the table of sessions: ConnectionError") == 1
    log_sessions({"wandb": 0}, SETTINGS.model_copy(update={"logged_sessions": 0}), 5, sessions(0.5))
    log_sessions({"mlflow": 0}, SETTINGS, 5, sessions(0.5))
    assert steps == [5, 10]


@pytest.mark.e2e
@pytest.mark.parametrize("name", ["wandb", "mlflow", "swanlab", "trackio"])
def test_a_real_tracker_gets_the_numbers_and_wandb_the_table_and_writes_into_the_runs_folder(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if importlib.util.find_spec(name) is None:
        pytest.skip(f"{name} is not installed")
    elsewhere, run = tmp_path / "elsewhere", tmp_path / "run"
    (elsewhere / "tmp").mkdir(parents=True)
    for variable in ("WANDB_DIR", "WANDB_DATA_DIR", "WANDB_CACHE_DIR", "MLFLOW_TRACKING_URI", "SWANLAB_LOG_DIR"):
        monkeypatch.delenv(variable, raising=False)
    for variable, value in {**OFFLINE, "HOME": str(elsewhere), "TMPDIR": str(elsewhere / "tmp")}.items():
        monkeypatch.setenv(variable, value)
    monkeypatch.setenv("PYTHONPATH", ":".join(filter(None, sys.path)))
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, name, str(run)], cwd=elsewhere, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert "did not take" not in done.stderr + done.stdout
    contents = b"".join(file.read_bytes() for file in run.rglob("*") if file.is_file())
    assert b"ditto/gap" in contents and (b"SAY WHERE IT IS" in contents) == (name == "wandb")
    left = [file for file in elsewhere.rglob("*") if file.is_file() and b"SAY WHERE" in file.read_bytes()]
    assert left == []
