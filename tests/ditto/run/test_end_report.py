"""A run ends with its report, and never fails because of it."""

import threading

import pytest

from ditto.run.run_folder import write_end_report
from tests.soul.figures.made_up_runs import training


def test_a_report_that_cannot_be_written_is_a_line_in_the_log(tmp_path, caplog):
    folder = training(tmp_path / "run", 0, steps=1)
    (folder / "report.html").mkdir()
    write_end_report(folder)
    assert "could not be written" in caplog.text


@pytest.mark.timeout(20)
def test_a_report_that_hangs_does_not_hold_the_run_up(tmp_path, monkeypatch):
    hang = threading.Event()
    monkeypatch.setattr("soul.pages.export.write_run_report", lambda folder: hang.wait(15))
    monkeypatch.setattr("ditto.run.run_folder.WAIT_S", 0.05)
    write_end_report(tmp_path)
    hang.set()
