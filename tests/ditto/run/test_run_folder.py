"""The run folder: whole files or none, and a step that is repeated after a crash is there once."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ditto.run.live_traces import open_live
from ditto.run.run_folder import RunFolder
from soul.record import AttemptRecord, SessionRecord, read_records


def record(session: str, **fields: Any) -> SessionRecord:
    """A session of that name, with nothing in it."""
    return SessionRecord(task="hitom", number=0, row=0, session=session, draft=AttemptRecord(reward=1.0), **fields)


def sessions(path: Path) -> list[str]:
    return [line["session"] for line in lines(path)]


def lines(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_traces_are_one_json_line_per_session(tmp_path: Path) -> None:
    both = [record("a_0", feedback="größer\nzweite Zeile"), record("b")]
    RunFolder(tmp_path).write_traces("step", 7, both)
    path = tmp_path / "traces" / "step_000007.jsonl"
    assert [line.record for line in read_records(path)] == both and sessions(path) == ["a_0", "b"]
    assert "größer" in path.read_text(encoding="utf-8")  # readable, not \\u-escaped


def test_metrics_are_one_line_per_step_of_finite_numbers(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    folder.log_metrics(
        1,
        {"a": 1, "b": torch.tensor(0.5), "c": np.float32(2), "nan": float("nan"), "inf": np.inf, "text": "x", "l": [1]},
    )
    folder.log_metrics(2, {"a": 2})
    assert lines(tmp_path / "metrics.jsonl") == [{"step": 1, "a": 1.0, "b": 0.5, "c": 2.0}, {"step": 2, "a": 2.0}]


def test_a_repeated_step_replaces_its_line_and_later_ones(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    for step in (1, 2, 3):
        folder.log_metrics(step, {"loss": step})
    folder.log_metrics(2, {"loss": 20})  # resumed from step 1
    assert lines(tmp_path / "metrics.jsonl") == [{"step": 1, "loss": 1.0}, {"step": 2, "loss": 20.0}]


def test_validation_and_training_of_one_step_stay_side_by_side(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    folder.log_metrics(5, {"val/reward": 0.1})
    folder.log_metrics(5, {"loss": 0.2})
    assert lines(tmp_path / "metrics.jsonl") == [{"step": 5, "val/reward": 0.1, "loss": 0.2}]
    folder.log_metrics(5, {"val/reward": 0.3})
    found = {key: value for line in lines(tmp_path / "metrics.jsonl") for key, value in line.items()}
    assert found == {"step": 5, "val/reward": 0.3, "loss": 0.2}


def live(folder: Path, *names: str) -> list[str]:
    """Write live files of these names; the names of those that are there."""
    for name in names:
        (folder / "traces" / "live" / name).write_text("{}\n")
    return sorted(path.name for path in (folder / "traces" / "live").iterdir())


def test_live_traces_last_until_their_step_is_written(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    open_live(tmp_path)
    live(tmp_path, "step_000006.11.jsonl", "step_000007.11.jsonl", "step_000007.12.jsonl", "step_000008.11.jsonl")
    folder.write_traces("val", 7, [record("v")])
    assert len(live(tmp_path)) == 4
    folder.write_traces("step", 7, [record("s")])
    assert live(tmp_path) == ["step_000008.11.jsonl"]
    open_live(tmp_path)  # a new attempt
    assert live(tmp_path) == []


def test_a_resumed_run_sets_the_live_traces_of_later_steps_aside(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    open_live(tmp_path)
    live(tmp_path, "step_000007.11.jsonl", "step_000008.11.jsonl")
    replaced = folder.rewind(7)
    assert replaced is not None and live(tmp_path) == ["step_000007.11.jsonl"]
    assert live(replaced) == ["step_000008.11.jsonl"] and not list((replaced / "traces").glob("*.jsonl"))
