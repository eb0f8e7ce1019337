"""A judge that answers the preflight and nothing after it ends a training with its first step, with the cause."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest

from soul.examples.endpoint import answer
from soul.testing import ChatRequest, FakeOpenAI, Reply, ServerError
from tests.e2e.run import Run

pytestmark = pytest.mark.e2e


def only_ready(request: ChatRequest) -> Reply:
    if "connection test" in request.text:
        return answer(request)
    time.sleep(1.5)  # slow enough for others to wait in line
    return ServerError(status=500)


def test_a_training_without_verdicts_says_why_and_ends(world: Path, tmp_path: Path) -> None:
    with FakeOpenAI(only_ready) as judge:
        address = judge.url  # the server has none once it is closed
        run = Run(tmp_path, world / "train.parquet", world / "heldback.parquet", world / "warm", address)
        run.overrides = ["judge.max_attempts=1", "judge.concurrency=1", "trainer.total_training_steps=2"]
        run.start("trainer.val_before_train=false")
        code = run.wait(420)
    log = run.log.read_text(errors="replace")
    assert code == 1, run.tail()
    assert "JudgeOutage: Step 1: the judge failed in 100% of 8 sessions" in log
    assert address in log and "server_error 8" in log and "Traceback" not in log
    # From the workers to the terminal, in our format: what calls wait for, and what the trainer did.
    assert re.search(r"\d\d:\d\d:\d\d WARNING soul\.judge\.limits: .*calls? wait", log)
    assert re.search(r"\d\d:\d\d:\d\d INFO ditto\.trainer: ", log)
    assert run.tracked_step() == 1
