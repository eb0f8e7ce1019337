"""The evaluation benchmark counts right. How fast anyone is, is for a quiet machine."""

import re

import pytest

from benchmarks import evaluate
from benchmarks.evaluate import Run, Work, bound, main, verdicts
from soul.errors import RunFailed


def work(rows=2000, concurrency=64):
    return Work(None, rows, concurrency)


def of(*seconds, cpu=1.0, rows=2000):
    return [Run(one, cpu, rows) for one in seconds]


def test_the_bound_is_the_servers_or_the_sdks_whichever_is_larger():
    assert bound({"plain": of(9, cpu=1.0)}, 2000, 64, 0.05) == pytest.approx(1.5625)
    assert bound({"plain": of(9, 9, 9, cpu=2.5)}, 2000, 64, 0.05) == 2.5


def test_every_target_is_held_to_its_own_number():
    slow = {"ours": of(2.0), "plain": of(1.7), "inspect_ai": of(9.9)}
    found = verdicts(slow, {"engine": of(1.65), "plain": of(1.6)}, work(), 0.05)
    assert [met for _, _, met in found] == [False, False, False]
    assert [round(ratio, 3) for _, ratio, _ in found] == [0.85, 4.95, 1.056]
    quick = {"ours": of(1.0), "plain": of(0.95), "inspect_ai": of(5.1)}
    found = verdicts(quick, {"engine": of(1.6), "plain": of(1.6)}, work(), 0.05)
    assert len(found) == 3 and all(met for _, _, met in found)


def test_rows_without_an_answer_are_an_error(monkeypatch):
    command = ["python", "-c", 'print(\'{"seconds": 1.0, "cpu": 1.0, "answered": 3}\')']
    monkeypatch.setattr(Work, "command", lambda self, name, url: command)
    assert evaluate.measured(work(rows=3), "ours", "").answered == 3
    with pytest.raises(RunFailed, match="3 of 4 rows"):
        evaluate.measured(work(rows=4), "ours", "")
    monkeypatch.setattr(Work, "command", lambda self, name, url: ["python", "-c", "raise SystemExit('why')"])
    with pytest.raises(RunFailed, match="why"):
        evaluate.measured(work(), "ours", "")


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
