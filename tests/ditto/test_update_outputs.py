"""What an update tells of its rows is what a pass before it tells, through verl's queue and worker."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import ray
import torch
from tensordict import TensorDict

from benchmarks.driver import composed
from benchmarks.one_process_update import actor_worker
from benchmarks.step import columns
from ditto.batch.queue import KVBatchMeta, put_columns, tq
from ditto.launching.compose import load_config
from ditto.objectives.losses import PLACES
from ditto.settings import Settings
from ditto.verl_hooks import plugin
from ditto.verl_hooks.update_outputs import places
from recipe.demo import tiny_model

pytestmark = pytest.mark.slow
ROOT = Path(__file__).resolve().parents[2]
ROWS = 6
UPDATE = {
    "calculate_entropy": True,
    "distillation_use_topk": False,
    "distillation_only": False,
    "distillation": None,
    "global_batch_size": ROWS,
    "mini_batch_size": ROWS,
    "epochs": 1,
    "seed": 1,
    "dataloader_kwargs": {"shuffle": False},
    "temperature": 1.0,
}


@pytest.fixture
def queue(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):  # restored after the test
        monkeypatch.setenv(name, "")
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, configure_logging=False)
    tq.init(composed(Path("unused"), 8).transfer_queue)
    yield
    tq.close()
    ray.shutdown()
    torch.distributed.destroy_process_group()


def test_the_update_writes_the_log_probs_of_its_rows_into_the_queue(queue: None, tmp_path: Path) -> None:
    plugin.require("cpu")
    tiny_model.build(tmp_path / "model", ["a corpus of a few words"] * 10, seed=0)
    config = load_config(
        [
            *("--config-dir", str(ROOT / "recipe" / "demo"), "--config-name", "demo", "platform=cpu"),
            *(f"data.train_files=[{tmp_path}/none]", f"data.val_files=[{tmp_path}/none]", f"run.dir={tmp_path}/run"),
            *(f"actor_rollout_ref.model.path={tmp_path}/model", "algorithm.objective=grpo"),
            *("data.train_batch_size=2", "actor_rollout_ref.actor.ppo_mini_batch_size=2"),
            *("actor_rollout_ref.rollout.n=2", "actor_rollout_ref.model.enable_gradient_checkpointing=false"),
        ]
    )
    worker = actor_worker(config, Settings.from_config(config))
    assert worker.active_dropout() == []

    rows = columns(ROWS, prompt=20, response=6, vocabulary=250)
    fields = {name: torch.nested.as_nested_tensor(row, layout=torch.jagged) for name, row in rows.items()}
    del fields["old_log_probs"]
    keys = [f"prompt_{row}_0" for row in range(ROWS)]
    tags = [{"seq_len": len(ids)} for ids in rows["input_ids"]]
    tq.kv_batch_put(keys=keys, partition_id="train", fields=TensorDict(fields, batch_size=ROWS), tags=tags)
    batch = KVBatchMeta(keys=keys, tags=tags, partition_id="train", fields=list(fields), extra_info={})

    def outputs() -> dict[str, torch.Tensor]:
        data = tq.kv_batch_get(keys=keys, partition_id="train", select_fields=["log_probs", "entropy"])
        return {name: data[name].values().clone() for name in ("log_probs", "entropy")}

    batch.extra_info.update(calculate_entropy=True, compute_loss=False, temperature=1.0)
    worker.compute_log_prob(batch)
    expected = outputs()
    put_columns(batch, **{PLACES: places(ROWS), "log_probs": fields["response_mask"] * 0.0})
    batch.fields = [name for name in batch.fields or [] if name != "log_probs"]
    batch.extra_info.update(UPDATE)
    assert worker.update_actor(batch)["metrics"]["grad_norm"][0] > 0
    batch.fields = [PLACES]
    worker.update_outputs(batch)
    for name, values in outputs().items():
        torch.testing.assert_close(values, expected[name], rtol=1e-4, atol=1e-5)
