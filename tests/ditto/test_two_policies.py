"""Two policies in one step are two separate runs with the other side frozen: groups, masks, losses, adapters, resumes.

In float64, to 1e-6 at most (most is equal bit by bit): one model with two adapters and one AdamW, against two models
with an adapter and an AdamW each.
"""

import copy
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from omegaconf import OmegaConf
from verl.trainer.ppo.v1 import PPOTrainer

import ditto.policy_steps
from benchmarks.step import training_worker
from ditto.batch.minibatch_layout import assign_mini_batches
from ditto.batch.queue import KVBatchMeta
from ditto.batch.step_batch import StepBatch
from ditto.batch.step_parts import StepParts
from ditto.model.engine import DittoEngine
from ditto.objectives.losses import objective_loss
from ditto.policy_steps import PolicySteps
from ditto.settings import Settings
from tests.ditto import tiny_step, worker_runs
from tests.ditto.our_step import actor_config, ours, records_of, step_data
from tests.ditto.tiny_step import tiny_model
from tests.ditto.two_policies import ADAPTERS, BOTH, LR, POLICIES, adapted, engine_on, factors, live_factors, rows_of

MODE = "token-mean"


# ---- a step's rows --------------------------------------------------------------------------------------------------


def planned(step: StepBatch, settings: Settings) -> list[Any]:
    mini_batch = assign_mini_batches([record.asked for record in step.records], 3)
    step.plan(mini_batch, settings, MODE, 1.0)
    return [(record.session, record.kind, mini_batch[i], record.loss) for i, record in enumerate(step.records)]


class Verls(PPOTrainer):
    """verl's part of the trainer: it samples, and balances what it gets."""

    def _step_once(self, metrics: Any, timing_raw: Any, sample_batch_size: int) -> KVBatchMeta:
        batch, _ = self.sample(partition_id="train")
        self.on_sample_end()
        step = StepBatch.fetch(batch)
        batch, _ = step.of_policy(batch, self.policy.name)
        self.parts.batches.append(step)
        self.plans[self.policy.name] = planned(step, self.settings)
        return batch

    def on_sample_end(self) -> None:
        self.slept += 1


class Steps(PolicySteps, Verls):
    """Our part of the trainer on it, without workers."""

    def _choose(self, policy: Any) -> None:
        self.policy, self.settings = policy, self._whole.of_policy(policy)


Steps.__abstractmethods__ = frozenset()


def test_the_rows_of_a_joint_step_are_those_of_two_separate_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    everything = [replace(record, policy=name) for name in POLICIES for record in records_of(rows_of(name))]
    order = torch.randperm(len(everything), generator=torch.Generator().manual_seed(1)).tolist()
    mixed = {f"key{i}": everything[i] for i in order}
    steps: Any = object.__new__(Steps)
    steps.parts, steps.plans, steps.slept, steps.global_steps, steps._asked_prompts = StepParts(), {}, 0, 1, 5
    steps.settings = steps._whole = BOTH
    steps.policies, steps._shares = BOTH.policies, []
    sessions = {record.session.partition(":")[0] for record in everything}
    steps.config = OmegaConf.create({"actor_rollout_ref": {"rollout": {"n": len(sessions) / 5}}})
    whole = KVBatchMeta(keys=list(mixed), tags=[{} for _ in mixed], partition_id="train")
    steps._sample_all, steps.sample = lambda **_: (whole, {}), steps._sample_share

    def fetch(batch: KVBatchMeta) -> StepBatch:
        return StepBatch([copy.copy(mixed[key]) for key in batch.keys], [])

    monkeypatch.setattr(ditto.policy_steps.StepBatch, "fetch", staticmethod(fetch))
    batch = steps._step_once({}, {}, 5)
    assert list(steps.plans) == list(POLICIES) and steps.slept == 1 and len(batch.keys) == len(everything)
    for name, policy in POLICIES.items():
        own = [record for record in mixed.values() if record.policy == name]
        assert steps.plans[name] == planned(StepBatch(copy.deepcopy(own), []), BOTH.of_policy(policy))


# ---- updates --------------------------------------------------------------------------------------------------------


def set_factors(engine: DittoEngine, adapter: str, policy: str) -> None:
    chance = torch.Generator().manual_seed(len(policy))
    for parameter in live_factors(engine.module, adapter).values():
        parameter.data = torch.randn(parameter.shape, generator=chance, dtype=torch.float64) * 0.3


def step_of(policy: str, model: torch.nn.Module, monkeypatch: pytest.MonkeyPatch) -> tuple[Settings, StepBatch, Any]:
    """A policy's settings, its part of a step, and what the workers get of it."""
    settings, rows = BOTH.of_policy(POLICIES[policy]), rows_of(policy)
    old = tiny_step.old_log_probs(model, rows, tiny_step.perturbed)
    return settings, *step_data(rows, old, settings, MODE, 1, monkeypatch)


def train(engine: DittoEngine, policy: str, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The updates of a policy in one step, with the losses of their mini-batches."""
    settings, step, data = step_of(policy, engine.module, monkeypatch)
    assert step.layout is not None
    losses = []
    for update in range(step.layout.updates):
        loss, _ = ours(engine.module, step, data, MODE, settings, ranks=1, splits=1, update=update, engine=engine)
        losses.append(loss)
        engine.optimizer.step()
        engine.optimizer.zero_grad()
    return losses


@pytest.mark.parametrize("turns", ["user assistant user assistant", "user user assistant"])
def test_adapters_and_losses_are_those_of_two_separate_runs(turns: str, monkeypatch: pytest.MonkeyPatch) -> None:
    together = engine_on(adapted(*ADAPTERS.values()))
    alone = {policy: engine_on(adapted("default")) for policy in ADAPTERS}
    for policy, adapter in ADAPTERS.items():
        set_factors(together, adapter, policy)
        set_factors(alone[policy], "default", policy)
    start = factors(together.module, "default")
    for policy in turns.split():
        other = next(adapter for name, adapter in ADAPTERS.items() if name != policy)
        before = factors(together.module, other)
        together.choose_adapter(ADAPTERS[policy])
        losses = [train(engine, policy, monkeypatch) for engine in (together, alone[policy])]
        assert losses[0] == pytest.approx(losses[1], rel=1e-12) and any(losses[0])
        assert all(torch.equal(value, before[name]) for name, value in factors(together.module, other).items())
    for policy, adapter in ADAPTERS.items():
        mine, theirs = factors(together.module, adapter), factors(alone[policy].module, "default")
        assert mine.keys() == theirs.keys() and len(mine) == 12
        for name, value in mine.items():
            torch.testing.assert_close(value, theirs[name], rtol=1e-12, atol=1e-12)
    assert any((v - start[k]).abs().max() > 1e-3 for k, v in factors(together.module, "default").items())


def test_the_learning_rate_moves_once_in_a_step_of_two_policies() -> None:
    engine = engine_on(adapted(*ADAPTERS.values()))
    engine.lr_scheduler = torch.optim.lr_scheduler.LambdaLR(engine.optimizer, lambda step: 1 / (1 + step))
    engine.optimizer.step()
    rates = []
    for adapter, last in [("default", False), ("policy_assistant", True)] * 2:
        engine.choose_adapter(adapter, last)
        rates.append(engine.lr_scheduler_step())
    assert rates == pytest.approx([LR, LR / 2, LR / 2, LR / 3])


# ---- FSDP2, and a resume --------------------------------------------------------------------------------------------


def worker_of(folder: Path) -> Any:
    lora = {"lora_rank": 4, "lora": {"policies": list(POLICIES)}}
    sizes = {"use_dynamic_bsz": True, "max_token_len_per_gpu": 1 << 20}
    return training_worker(folder / "model", lora, sizes, {"lr": LR, "total_training_steps": 10})


def train_rank(worker: Any, policy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A step of one policy on a rank of its own, as the trainer asks for it."""
    settings, step, data = step_of(policy, tiny_model(), monkeypatch)
    assert step.layout is not None
    columns = {key: list(value.unbind()) for key, value in data.items()}
    columns["old_log_probs"] = [row.float() for row in columns["old_log_probs"]]
    loss = partial(objective_loss, config=actor_config(MODE), objective=settings.objective, options=settings.options)
    worker.engine.choose_adapter(ADAPTERS[policy])
    worker.set_loss_fn(loss)
    norms = worker_runs.train(worker, columns, {"distillation": None, "tree": False, "rows": step.layout.rows})
    assert all(norm > 0 for norm in norms)


def test_a_resumed_run_goes_on_with_both_adapters_and_their_optimizers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in worker_runs.rendezvous().items():
        monkeypatch.setenv(name, value)
    tiny_model().float().save_pretrained(tmp_path / "model")
    saved, assistants = str(tmp_path / "checkpoint"), ADAPTERS["assistant"]
    worker = worker_of(tmp_path)
    try:
        start = copy.deepcopy(worker.engine.adapter_weights(assistants)[0])  # on one rank it is the live memory
        train_rank(worker, "user", monkeypatch)
        frozen = worker.engine.adapter_weights(assistants)[0]
        assert all(torch.equal(frozen[name], value) for name, value in start.items())
        train_rank(worker, "assistant", monkeypatch)
        worker.save_checkpoint(saved, global_step=1)
        resumed = worker_of(tmp_path)
        resumed.load_checkpoint(saved, del_local_after_load=False)
        for each in (worker, resumed):
            for policy in ("assistant", "user"):
                train_rank(each, policy, monkeypatch)
        for adapter in ADAPTERS.values():
            ends = [each.engine.adapter_weights(adapter)[0] for each in (worker, resumed)]
            assert all(torch.equal(value, ends[1][name]) for name, value in ends[0].items())
            assert not any(torch.equal(value, start[name]) for name, value in ends[0].items())
    finally:
        torch.distributed.destroy_process_group()
