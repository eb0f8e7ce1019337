"""kill -9 in the validation of a published step: the same command goes on and makes up what is missing.

`python -m benchmarks.kills` does the same at many moments, and compares with a run that was not killed.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.kills import CRITIQUE, kill, small_run, started, wait_for_point
from ditto.run import manifest
from soul.testing import FakeOpenAI, Json

pytestmark = pytest.mark.e2e


def test_a_kill_in_a_validation_loses_neither_its_step_nor_its_numbers(world: Path, tmp_path: Path) -> None:
    with FakeOpenAI(Json(CRITIQUE)) as judge:
        run = small_run(tmp_path / "killed", world, judge.url, steps=2)
        run.overrides += [
            "algorithm.objective=ditto_refined_only",
            "trainer.test_freq=1",
            "trainer.val_before_train=false",
            "trainer.max_actor_ckpt_to_keep=null",
        ]
        started(run, "at the end of the validation")
        assert wait_for_point(run), run.tail()
        assert kill(run, "all processes") == []
        # The step is published with the metrics of its training; those of its validation are lost with the process.
        assert run.tracked_step() == 1 and list(run.metrics()) == [1]
        assert "timing_s/step" in run.metrics()[1] and "val/hitom/n" not in run.metrics()[1]
        started(run)
        assert run.wait(420) == 0, run.tail()
    assert f"Resuming from {run.dir / 'global_step_1'}" in run.log.read_text(errors="replace")
    lines = run.metrics()
    assert list(lines) == [1, 2]
    assert set(lines[1]) == set(lines[2]) and "val/hitom/n" in lines[1] and "timing_s/testing" in lines[1]
    for step in (1, 2):
        assert len(run.traces(f"step_{step:06d}")) == 8 and len(run.traces(f"val_{step:06d}")) == 6
        manifest.check(run.dir / f"global_step_{step}")
    assert not (run.dir / "replaced").exists() and run.descendants() == []
