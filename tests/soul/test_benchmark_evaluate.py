"""The evaluation benchmark counts right. How fast anyone is, is for a quiet machine."""

import re

import pytest

from benchmarks import evaluate
from benchmarks.evaluate import Work, main
from soul.errors import RunFailed


def test_rows_without_an_answer_are_an_error(monkeypatch):
    command = ["python", "-c", 'print(\'{"seconds": 1.0, "cpu": 1.0, "answered": 3}\')']
    monkeypatch.setattr(Work, "command", lambda self, name, url: command)
    assert evaluate.measured(Work(None, 3, 64), "ours", "").answered == 3
    with pytest.raises(RunFailed, match="3 of 4 rows"):
        evaluate.measured(Work(None, 4, 64), "ours", "")
    monkeypatch.setattr(Work, "command", lambda self, name, url: ["python", "-c", "raise SystemExit('why')"])
    with pytest.raises(RunFailed, match="why"):
        evaluate.measured(Work(None, 2000, 64), "ours", "")


@pytest.mark.stress  # seven processes, each of which imports a client or a harness
def test_real_contenders_answer_every_row(monkeypatch, capsys):
    pytest.importorskip("inspect_ai")
    others = ["inspect_ai"]
    monkeypatch.setattr(evaluate.console, "width", 200)
    main(["--rows", "30", "--concurrency", "4", "--latency", "0.01", "--repeats", "1", "--only", *others])
    printed = capsys.readouterr().out
    assert len(re.findall(rf"│ (?:ours|engine|plain|{'|'.join(others)}) +│", printed)) == 7
    assert re.search(r"(?:met   |MISSED) +\d+\.\d+  rows/s of ours over plain, at least 0.9", printed)
    assert "10 ms: seconds of the engine over the bound" in printed
