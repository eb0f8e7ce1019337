"""The viewer's benchmark writes a run of the size that it is asked for, and measures it."""

import pytest

from benchmarks import viewer
from benchmarks.viewer import NAME, NEEDLE, main
from soul.view.training import Training


def made(folder, *, tokens):
    size = ["--steps", "2", "--sessions", "16", "--tokens", str(tokens)]
    assert main(["make", str(folder), *size]) == 0
    return Training(folder / NAME)


def test_the_run_has_the_size_and_one_needle(tmp_path):
    run = made(tmp_path, tokens=2000)
    run.refresh()
    columns = run.columns(0, None)["columns"]
    assert columns["step"] == [1] * 16 + [2] * 16 and not run.overview(None)["problems"]
    characters = 2 * 2000 * viewer.CHARACTERS
    assert characters < viewer.trace_bytes(run.folder) / 32 < 1.15 * characters + 2000
    assert [event["hit"] for event in run.search(NEEDLE, 0) if "hit" in event] == [32]


@pytest.mark.slow
def test_it_measures_every_goal(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("CHROMIUM", "")
    monkeypatch.setenv("PATH", "")
    made(tmp_path, tokens=200)
    assert main(["measure", str(tmp_path)]) == 0
    text = capsys.readouterr().out
    for what in ("build the index", "open the run", "a session, file in the cache", "1 hits", "there is no chromium"):
        assert what in text
