"""The load test of the shared limits runs on real Ray, and never sees more calls in flight than the cap allows."""

import re

import pytest

from benchmarks.limits_load import main


@pytest.mark.slow
def test_a_short_load(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--workers", "4", "--processes", "2", "--seconds", "1", "--window", "10", "--only", "fast"]) == 0
    assert re.search(r"fast .* \d+/512 ", capsys.readouterr().out)
