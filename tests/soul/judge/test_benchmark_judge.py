"""The judge benchmark runs and prints its ratios. How large they are is for a quiet machine, not for a test."""

import re

import pytest

from benchmarks import judge

NUMBER = r"-?\d+\.\d+"
SPREAD = rf"{NUMBER} \({NUMBER} to {NUMBER}\)"


@pytest.fixture(autouse=True)
def wide(monkeypatch):
    monkeypatch.setattr(judge.console, "width", 200)


@pytest.mark.slow  # processes that import the SDK
def test_compare_prints_the_ratio_to_a_plain_client(capsys):
    judge.main("compare --calls 32 --concurrency 8 --latency 0.01 0 --repeats 1 --words 20".split())
    printed = capsys.readouterr().out
    found = re.findall(
        rf"gateway over plain, requests/s {SPREAD}, steady {SPREAD}.*; own CPU, ms per call {SPREAD}", printed
    )
    assert len(found) == 2, printed
    assert re.search(r"The server answers at least [\d,]+ requests/s", printed)


@pytest.mark.slow  # processes that import the SDK
def test_cap_prints_the_ratio_to_what_the_cap_allows(capsys):
    judge.main("cap --calls 16 --concurrency 4 --latency 0.01 --repeats 1 --words 20".split())
    rows = [line for line in capsys.readouterr().out.splitlines() if re.search(r"│ +(plain|gateway) ", line)]
    assert len(rows) == 2
    assert all(len(re.findall(SPREAD, row)) == 2 for row in rows), rows


def test_sweep_prints_a_step_by_its_cap_and_draws_it(capsys, tmp_path):
    pytest.importorskip("matplotlib")
    file = tmp_path / "sweep.png"
    judge.main(f"sweep --sessions 4 --concurrency 2 4 --latency 0.01 --repeats 1 --words 20 --plot {file}".split())
    printed = capsys.readouterr().out
    assert "4 sessions, 12 calls" in printed
    assert len(re.findall(rf"ratio {NUMBER}", printed)) == 2
    assert re.search(r"Caps above [24] gain less", printed)
    assert file.read_bytes().startswith(b"\x89PNG")


def test_too_few_calls_for_a_steady_state_are_refused(capsys):
    with pytest.raises(SystemExit):
        judge.main("compare --calls 8 --concurrency 8".split())
    assert "--calls 8" in capsys.readouterr().err
