"""The benchmark of supervised training that docs/sft.md cites runs, and measures both contenders."""

from __future__ import annotations

import pytest

from benchmarks import sft

pytestmark = pytest.mark.slow


def test_the_benchmark_of_supervised_training_runs() -> None:
    rates = sft.measure("1M", rounds=1, trl_python=None)
    steps = sft.SIZES["1M"][2]
    assert {name: len(found) for name, found in rates.items()} == dict.fromkeys(rates, steps - sft.WARM)
    assert set(rates) == {"ours", "by hand"} and all(rate > 0 for found in rates.values() for rate in found)
