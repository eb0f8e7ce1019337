"""A run whose weight syncs stop arriving, without an error, ends by itself; prefetched rollouts do not end a run.

The first run trains LoRA at the recipe's learning rate: such small updates move no log-prob beyond rounding, and only
the engine's unchanging answers give the lost syncs away. In the second run the weights move far in each step.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from soul.testing import FakeOpenAI, Json
from tests.e2e import lost_sync
from tests.e2e.run import Run

pytestmark = pytest.mark.slow


def train(world: Path, folder: Path, *overrides: str) -> tuple[Run, int]:
    """Run a training without validation and checkpoints to its end. Returns the run and its exit code."""
    with FakeOpenAI(Json({"critique": "Ask what the character saw last.", "ready": True})) as judge:
        run = Run(folder, world / "train.parquet", world / "heldback.parquet", world / "warm", judge.url)
        run.overrides = ["trainer.save_freq=-1", "trainer.test_freq=-1", "trainer.val_before_train=false", *overrides]
        run.start()
        return run, run.wait(420)


def test_a_lost_weight_sync_ends_the_run(world: Path, tmp_path: Path) -> None:
    run, code = train(
        world,
        tmp_path,
        "trainer.v1.sampler.custom_sampler.path=pkg://tests.e2e.lost_sync",
        "actor_rollout_ref.actor.optim.lr=5e-6",
        "trainer.total_training_steps=20",
    )
    assert code != 0
    log = run.log.read_text(errors="replace")
    last = lost_sync.LAST_SYNC + 3  # run.max_unchanged_syncs
    assert f"WeightsOutOfSync: Step {last}: rollout server 0 answers a fixed prompt" in log, run.tail()
    assert sorted(run.metrics()) == list(range(1, last))


def test_prefetched_rollouts_raise_no_alarm(world: Path, tmp_path: Path) -> None:
    run, code = train(
        world,
        tmp_path,
        "trainer.v1.trainer_mode=ditto_colocate_async",
        "actor_rollout_ref.actor.use_kl_loss=false",
        "trainer.total_training_steps=4",
    )
    assert code == 0, run.tail()
    assert sorted(run.metrics()) == [1, 2, 3, 4]
