"""`soul view` as a user starts and ends it."""

import re
import signal
import subprocess
import sys
import urllib.request

import pytest

from soul.cli.main import main
from tests.soul.evaluate.finished_run import finished_run
from tests.soul.evaluate.finished_samples import numbered
from tests.soul.figures.made_up_runs import training


@pytest.mark.timeout(60)
def test_it_prints_an_address_that_works_and_ends_with_ctrl_c(tmp_path):
    training(tmp_path / "run", 0, steps=1)
    command = [sys.executable, "-m", "soul", "view", str(tmp_path), "--no-browser"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        address = re.search(r"http://127\.0\.0\.1:\d+/[\w-]{22}/", process.stdout.readline())
        with urllib.request.urlopen(address.group(), timeout=20) as page:
            assert b"<html" in page.read() and "connect-src 'self'" in page.headers["Content-Security-Policy"]
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=20)
    assert process.returncode == 0 and not errors


def test_runs_are_written_to_a_file_or_a_folder(tmp_path, capsys):
    training(tmp_path / "runs" / "run", 0, steps=2)
    finished_run(tmp_path / "base", numbered([1.0, 0.0]))
    for arguments in (["runs", "--export", "new/x.html"], ["base", "--export", "new/y.html"], [".", "--site", "site"]):
        folder, option, out = arguments
        assert main(["view", str(tmp_path / folder), option, str(tmp_path / out)]) == 0
    said = capsys.readouterr().out
    files = [*(tmp_path / "new").iterdir(), *(tmp_path / "site").iterdir()]
    assert len(files) == 5 and all(f"{file} (0." in said and "<html" in file.read_text() for file in files)
