"""Live traces: whole lines whatever else is written, one message if the disk fails, nothing without the folder."""

import asyncio
import json
import logging
import os
from pathlib import Path

import pytest

from ditto.run.live_traces import LiveTraces, folder_of
from soul.files.trace_files import trace_files


def append(run: Path, *lines: str, step: int = 7) -> None:
    """Append all of these lines at a time, as the sessions of a process do."""

    async def together(traces: LiveTraces) -> None:
        await asyncio.gather(*(traces.append(step, line) for line in lines))

    asyncio.run(together(LiveTraces(run)))


def test_each_session_is_a_whole_line_in_the_file_of_its_step(tmp_path: Path) -> None:
    folder_of(tmp_path).mkdir(parents=True)
    lines = [json.dumps({"session": number, "text": "größer" * 9_000}) for number in range(40)]
    append(tmp_path, *lines)
    append(tmp_path, "{}", step=8)
    seven, eight = trace_files(tmp_path / "traces")
    assert (seven.step, eight.step) == (7, 8) and sorted(seven.path.read_text(encoding="utf-8").splitlines()) == sorted(
        lines
    )
    name, process, ending = seven.path.name.split(".")
    assert name == "step_000007" and process.startswith(str(os.getpid())) and ending == "jsonl"


def test_a_disk_that_fails_is_named_once_and_costs_no_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    folder_of(tmp_path).parent.mkdir()
    folder_of(tmp_path).touch()  # not a folder: nothing can be written
    append(tmp_path, "a", "b", "c")
    assert len(caplog.records) == 1 and "writes no live traces any more" in caplog.text


def test_without_the_folder_nothing_is_written_and_no_warning_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        append(tmp_path, "a", "b")
    assert list(tmp_path.iterdir()) == [] and not caplog.records
