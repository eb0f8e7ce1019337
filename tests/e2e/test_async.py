"""The asynchronous trainers on real components: Ray, FSDP2, vLLM, a judge behind HTTP.

In separate_async a step trains in two parts between two weight syncs. Rows are read in the order of the file, so a row
that is missing in the traces, or there twice, was lost or trained twice.
"""

import json
import math
import re
from collections import Counter
from pathlib import Path
from typing import Any

import psutil
import pytest

from ditto.run import manifest
from soul.testing import FakeOpenAI, Json
from tests.e2e.run import Run
from tests.metric_names import undocumented

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1800)]  # busy machines: the waits of a test end first

CRITIQUE = Json({"critique": "You answered where the thing is now. Ask what the character saw last.", "ready": True})
PROMPTS, N = 4, 2
START_S, END_S = 720, 180
SEPARATE = ["trainer.v1.trainer_mode=ditto_separate_async", "trainer.v1.separate_async.parameter_sync_step=2"]
COLOCATED = ["trainer.v1.trainer_mode=ditto_colocate_async"]


def new_run(folder: Path, world: Path, url: str, steps: int, *overrides: str) -> Run:
    run = Run(folder, world / "train.parquet", world / "heldback.parquet", world / "warm", url)
    run.environment = {"RAY_ADDRESS": "local"}
    run.overrides = [
        f"trainer.total_training_steps={steps}",
        "trainer.total_epochs=100",
        "trainer.n_gpus_per_node=1",
        "trainer.save_freq=1",
        "trainer.test_freq=-1",
        "trainer.val_before_train=false",
        "data.val_max_samples=4",
        "data.shuffle=false",
        "run.max_unchanged_syncs=1",  # every sync after an update must change what the servers answer
        *overrides,
    ]
    return run


def sessions_of(run: Run, step: int, parts: int) -> list[dict[str, Any]]:
    """The traces of a step's parts."""
    names = [f"step_{step:06d}" + (f".{part}" if part else "") for part in range(parts)]
    return [trace for name in names for trace in run.traces(name)]


def check_step(run: Run, step: int, parts: int) -> dict[str, float]:
    """Draft and refined answer of every session are there, and the numbers are those of all parts."""
    numbers, traces = run.metrics()[step], sessions_of(run, step, parts)
    assert len(traces) == numbers["ditto/sessions"] == PROMPTS * N
    assert set(Counter(trace["prompt"] for trace in traces).values()) == {N}
    refined = [trace["refined"]["reward"] for trace in traces if trace["refined"]]
    assert len(refined) == PROMPTS * N
    drafts = [trace["draft"]["reward"] for trace in traces]
    assert numbers["ditto/reward_draft"] == pytest.approx(sum(drafts) / len(drafts))
    assert numbers["ditto/reward_refined"] == pytest.approx(sum(refined) / len(refined))
    assert numbers["ditto/sequences"] == 3 * PROMPTS * N
    assert numbers["actor/updates"] == 2
    assert not undocumented(numbers)
    assert all(math.isfinite(value) for value in numbers.values())
    return numbers


def test_an_adapter_reaches_servers_of_their_own_and_a_dead_server_ends_the_run(world: Path, tmp_path: Path) -> None:
    with FakeOpenAI(CRITIQUE) as judge:
        run = new_run(tmp_path, world, judge.url, 500, *SEPARATE, "trainer.save_freq=-1")
        run.overrides += [
            "trainer.v1.separate_async.num_warmup_batches=0",  # all rollouts are by the newest weights
            "actor_rollout_ref.actor.optim.lr=5e-3",
        ]
        run.start()
        run.until(lambda: (run.dir / "metrics.jsonl").exists() and 3 in run.metrics(), START_S, "three steps")
        engines = [p for p in run.descendants() if "EngineCore" in " ".join([p.name(), *p.cmdline()])]
        assert len(engines) == 1, "the actor's device runs no server"
        engines[0].kill()
        assert run.wait(END_S) == 1, run.tail()
    assert "rollout server 0 died" in json.loads((run.dir / "failure.json").read_text())["cause"]
    assert psutil.wait_procs(run.descendants(), timeout=30)[1] == []
    moved = []
    for step in (1, 2, 3):
        numbers = check_step(run, step, parts=2)
        # The servers' log-probs are the actor's, also after the adapter has moved: without a sync they would differ by
        # what the step before moved. Rounding grows with so high a rate, so the bound does too.
        assert numbers["training/rollout_logprob_diff_mean"] < max(1e-2, 0.1 * max(moved, default=0.0))
        assert numbers["training/off_policy/trajectory_staleness/max"] == 0
        # The second part's pi_old is of the step's beginning: the first part's update shows in its ratios.
        moved.append(max(abs(numbers[f"actor/part/{part}/ppo_kl"]) for part in ("joint", "feedback")))
    assert max(moved) > 0.01


def resumed(run: Run, parts: int, steps: int, *more: str) -> None:
    """Kill the run in its second step, continue it with the same command and `more`, and check what it leaves."""
    run.start()
    second = run.dir / "traces" / "step_000002.jsonl"
    run.until(second.exists, START_S, "the second step")
    run.kill()
    run.start(*more)
    assert run.wait(START_S) == 0, run.tail()
    log = run.log.read_text(errors="replace")
    (before,) = (
        int(step) for step in re.findall(rf"Resuming from {re.escape(str(run.dir))}/global_step_(\d+)$", log, re.M)
    )
    assert before in (1, 2)
    assert "training prompt groups from TransferQueue" in log
    assert sorted(run.metrics()) == list(range(1, steps + 1))
    prompts: Counter[str] = Counter()
    rows: Counter[int] = Counter()
    for step in range(1, steps + 1):
        check_step(run, step, parts)
        trained = {trace["prompt"]: trace["row"] for trace in sessions_of(run, step, parts)}
        prompts.update(trained.keys())
        rows.update(trained.values())
        manifest.check(run.dir / f"global_step_{step}")
    assert set(prompts.values()) == set(rows.values()) == {1}, "none is trained twice"
    # One batch is sampled ahead. All that were in flight when the checkpoint was written have been trained by now.
    assert set(range(PROMPTS * (before + 1))) <= set(rows) <= set(range(PROMPTS * (steps + 1)))
    staleness = [run.metrics()[step]["training/off_policy/trajectory_staleness/max"] for step in range(1, steps + 1)]
    assert staleness[0] == 0 and 1 <= max(staleness) <= 2


def test_separate_async_resumes_after_a_kill(world: Path, tmp_path: Path) -> None:
    with FakeOpenAI(CRITIQUE) as judge:
        run = new_run(tmp_path, world, judge.url, 4, *SEPARATE, "actor_rollout_ref.model.lora_rank=0")
        run.overrides.append("algorithm.objective=erl")
        resumed(run, parts=2, steps=4)


def test_colocate_async_resumes_on_two_devices(world: Path, tmp_path: Path) -> None:
    """A preempted run of an adapter continues on another machine.

    Rollouts that were sampled ahead are by older weights, which must raise no alarm of a lost sync.
    """
    with FakeOpenAI(CRITIQUE) as judge:
        run = new_run(tmp_path, world, judge.url, 4, *COLOCATED)
        run.overrides.append("actor_rollout_ref.actor.checkpoint.save_lora_only=true")
        more = ["trainer.n_gpus_per_node=2", "transfer_queue.backend.SimpleStorage.num_data_storage_units=2"]
        resumed(run, 1, 4, *more)
    last = run.dir / "global_step_4"
    assert manifest.writers(last / "actor") == 2
    assert (last / "lora_adapter" / "adapter_model.safetensors").exists() and not list(last.glob("*.safetensors"))
