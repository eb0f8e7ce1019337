"""The judge gateway inside a real training run: one cap over several agent-loop workers, the bill, the budget, the key.

One run of three agent-loop workers on a judge with a price. Its budget covers a step or two and no more, so it saves
and ends by itself; the same command with a lower budget then says so at once.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from agents.testing import FakeOpenAI, Json
from tests.e2e.run import SENTINEL_KEY, Run

pytestmark = pytest.mark.slow

CAP, PRICE = 2, 10.0  # requests in flight over the run; US dollars per million words, in and out
ANSWER = {"critique": "Ask what the character saw last.", "ready": True}


class Finished:
    """A run that ended by itself, what its judge saw of it, and what its processes looked like."""

    def __init__(self, run: Run, fake: FakeOpenAI, code: int, command_lines: set[str]) -> None:
        self.run, self.fake, self.code, self.command_lines = run, fake, code, command_lines

    @property
    def usage(self) -> dict[str, dict[str, float]]:
        return dict(json.loads((self.run.dir / "usage.json").read_text()))

    @property
    def ray_logs(self) -> Path:
        found = {m[1] for line in self.command_lines if (m := re.search(r"--session[-_]dir=(\S+)", line))}
        assert len(found) == 1, found
        return Path(found.pop())


@pytest.fixture(scope="module")
def finished(world: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Finished]:
    with FakeOpenAI(Json(ANSWER, delay=0.1)) as fake:
        folder = tmp_path_factory.mktemp("judge")
        run = Run(folder, world / "train.parquet", world / "heldback.parquet", world / "warm", fake.url)
        run.overrides = [
            "actor_rollout_ref.rollout.agent.num_workers=3",
            "trainer.total_training_steps=10",
            "trainer.save_freq=100",
            "trainer.test_freq=-1",
            "trainer.val_before_train=false",
            f"judge.concurrency={CAP}",
            f"judge.price_in={PRICE}",
            f"judge.price_out={PRICE}",
            "judge.budget_usd=0.1",
        ]
        run.start()
        lines: set[str] = set()

        def seen() -> bool:
            for process in run.descendants():
                try:
                    lines.add(" ".join(process.cmdline()))
                except psutil.Error:
                    continue
            return (run.dir / "metrics.jsonl").exists()

        run.until(seen, 420, "step 1")
        yield Finished(run, fake, run.wait(300), lines)


def test_the_budget_ends_the_run_with_a_checkpoint_and_without_an_error(finished: Finished) -> None:
    log = finished.run.log.read_text(errors="replace")
    assert finished.code == 0, finished.run.tail()
    steps = len(finished.run.metrics())
    spent = finished.usage["total"]["cost_usd"]
    assert 1 <= steps < 10 and finished.run.tracked_step() == steps
    assert (finished.run.dir / f"global_step_{steps}" / "config.json").exists()
    assert spent < 0.1 <= spent * (steps + 1) / steps * 1.2, "it ends when the next step would not fit"
    assert "of judge.budget_usd=$0.10 are spent" in log and "What the judges cost" in log


def test_the_cap_holds_over_all_agent_loop_workers(finished: Finished) -> None:
    assert finished.fake.peak == CAP


def test_the_bill_is_what_the_endpoint_saw(finished: Finished) -> None:
    """Requests, tokens and money: counted by the judge's server, in the traces, and in usage.json."""
    asked = [request for request in finished.fake.requests if "ping" not in request.data]
    words_in = sum(len(request.text.split()) for request in asked)
    words_out = len(asked) * len(json.dumps(ANSWER).split())
    total = finished.usage["total"]
    assert (total["requests"], total["prompt_tokens"], total["completion_tokens"]) == (len(asked), words_in, words_out)
    assert total["cost_usd"] == pytest.approx((words_in + words_out) * PRICE / 1e6)
    traces = [t for step in finished.run.metrics() for t in finished.run.traces(f"step_{step:06d}")]
    assert sum(u["calls"] for t in traces for u in t["usage"].values()) == total["calls"]
    assert set(finished.usage["tasks"]["hitom"]) == {"feedback"}  # the role that writes critiques; rules score
    assert total["latency_p50_s"] > 0.1


def test_equal_questions_were_asked_once(finished: Finished) -> None:
    asked = [
        json.dumps(request.data, sort_keys=True) for request in finished.fake.requests if "ping" not in request.data
    ]
    assert len(asked) == len(set(asked))


def test_the_key_is_in_no_artefact_no_log_of_ray_and_no_command_line(finished: Finished) -> None:
    assert finished.fake.requests[0].headers["authorization"] == f"Bearer {SENTINEL_KEY}"  # it was used ...
    for folder in (finished.run.folder, finished.ray_logs):
        files = [path for path in folder.rglob("*") if path.is_file() and not path.is_symlink()]
        assert len(files) > 10
        assert [path for path in files if SENTINEL_KEY.encode() in path.read_bytes()] == []  # ... and shows nowhere
    assert len(finished.command_lines) > 5
    assert not [line for line in finished.command_lines if SENTINEL_KEY in line]


def test_the_bill_is_there_for_people(finished: Finished) -> None:
    bill = finished.run.log.read_text(errors="replace").partition("What the judges cost")[2][:2000]
    assert "hitom" in bill and "feedback" in bill and re.search(r"\$0\.(0[1-9]|1\d)", bill)  # near the budget of $0.10


def test_the_same_command_says_that_the_budget_is_spent(finished: Finished) -> None:
    """Spent is spent, also after the run: a lower budget is refused before any engine starts."""
    run = finished.run
    run.overrides = [word.replace("judge.budget_usd=0.1", "judge.budget_usd=0.01") for word in run.overrides]
    run.start()
    assert run.wait(120) == 2
    assert "judge.budget_usd=0.01 is spent" in run.log.read_text(errors="replace")
