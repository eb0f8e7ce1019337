"""A run whose weight syncs stop arriving, without an error, ends by itself.

It trains LoRA at the recipe's learning rate: such small updates move no log-prob beyond rounding, and only the engine's
unchanging answers give the lost syncs away.
"""

from pathlib import Path

import pytest

from soul.testing import FakeOpenAI, Json
from tests.e2e import lost_sync
from tests.e2e.run import Run

pytestmark = pytest.mark.e2e


def test_a_lost_weight_sync_ends_the_run(world: Path, tmp_path: Path) -> None:
    with FakeOpenAI(Json({"critique": "Ask what the character saw last.", "ready": True})) as judge:
        run = Run(tmp_path, world / "train.parquet", world / "heldback.parquet", world / "warm", judge.url)
        run.overrides = [
            "algorithm.objective=sdpo_token",  # every step has something to learn
            "trainer.save_freq=-1",
            "trainer.test_freq=-1",
            "trainer.val_before_train=false",
            "trainer.v1.sampler.custom_sampler.path=pkg://tests.e2e.lost_sync",
            "actor_rollout_ref.actor.optim.lr=5e-6",
            "trainer.total_training_steps=20",
        ]
        run.start()
        assert run.wait(420) != 0
    log = run.log.read_text(errors="replace")
    last = lost_sync.LAST_SYNC + 3  # run.max_unchanged_syncs
    assert f"WeightsOutOfSync: Step {last}: rollout server 0 answers a fixed prompt" in log, run.tail()
    assert sorted(run.metrics()) == list(range(1, last))
