"""The judge benchmark runs and prints its ratios. How large they are is for a quiet machine, not for a test."""

import re

import pytest

from benchmarks import judge

NUMBER = r"-?\d+\.\d+"
SPREAD = rf"{NUMBER} \({NUMBER} to {NUMBER}\)"


@pytest.fixture(autouse=True)
def wide(monkeypatch):
    monkeypatch.setattr(judge.console, "width", 200)


@pytest.mark.stress  # processes that import the SDK
def test_compare_prints_the_ratio_to_a_plain_client(capsys):
    judge.main("--calls 32 --concurrency 8 --latency 0.01 0 --repeats 1 --words 20".split())
    printed = capsys.readouterr().out
    found = re.findall(
        rf"gateway over plain, requests/s {SPREAD}, steady {SPREAD}.*; own CPU, ms per call {SPREAD}", printed
    )
    assert len(found) == 2, printed
    assert re.search(r"The server answers at least [\d,]+ requests/s", printed)
