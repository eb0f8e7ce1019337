"""The load test of the judge actor runs on real Ray."""

import re

import pytest

from benchmarks.judge_actor import main


@pytest.mark.stress
def test_a_short_load(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--workers", "2", "--calls", "100", "--at-once", "8"]) == 0
    assert re.search(r"200 calls .* \d+ calls a second", capsys.readouterr().out)
