"""The numbers of a step in two parts are those of the same sessions in one part, and verl's pi_old stays in the chain.

The parts differ in size, so that a mean of the parts' means is another number than the mean over all.
"""

import random
from collections import Counter
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from omegaconf import OmegaConf
from verl.trainer.ppo.v1 import PPOTrainerSeparateAsync

import ditto.batch.queue
import ditto.old_log_probs
from ditto.batch.jagged import jagged
from ditto.batch.sequence_record import PADDING, RowLoss, SequenceRecord
from ditto.batch.step_batch import Columns, StepBatch
from ditto.batch.step_parts import StepParts
from ditto.objectives import OBJECTIVES
from ditto.old_log_probs import OldLogProbs, PiOld
from ditto.rollout.sync_alarm import SyncAlarm, WeightsOutOfSync
from ditto.trainer_modes import DittoTrainerColocateAsync, DittoTrainerSeparateAsync, DittoTrainerSync
from tests.ditto.run.test_step_metrics import record_of, session

STEP = 3
UPDATE = {"actor/grad_norm": [2.0], "actor/lr": [1e-3], "actor/part/joint/loss": [0.5], "actor/perf/max_gb": [3.0]}


def part(chance: random.Random, prompts: list[str]) -> tuple[StepBatch, list[dict[str, Any]]]:
    """A part with sequences of every kind, a dropped one and a padding row; with verl's tags."""
    records, traces = [], []
    for number, prompt in enumerate(prompts):
        for n in range(2):
            name = f"{prompt}_{n}"
            trace = record_of(session(chance))
            trace.session, trace.prompt, trace.row = name, prompt, number
            traces.append(trace)
            for kind in ("draft", "refined_base", "refined_feedback"):
                records.append(SequenceRecord(kind, prompt, name, chance.random() < 0.9, 2, chance.randint(1, 6), 0.5))
    sequences = list(records)
    weighed = [RowLoss(advantage=chance.random(), weight=chance.random()) for _ in records[1:]]
    records = [*(replace(record, loss=loss) for record, loss in zip(records[1:], weighed, strict=True)), PADDING]
    masks = [torch.ones(record.tokens or 1, dtype=torch.int64) * bool(record.tokens) for record in records]
    torch.manual_seed(chance.randint(0, 999))
    old = [-torch.rand(len(mask)) for mask in masks]
    sampled = [values + 0.01 * torch.rand(len(values)) for values in old]
    batch = StepBatch(records, traces, sequences)
    batch.columns = Columns(jagged(masks), jagged(old), jagged(sampled))
    batch.entropy = torch.rand(int(sum(mask.sum() for mask in masks)))
    batch.advantages = jagged([torch.randn(1) * mask for mask in masks])
    batch.reference = jagged([values + 0.1 * torch.rand(len(values)) for values in old])
    batch.groups = Counter(groups=len(prompts), idle=len(prompts), skipped=1, tokens_skipped=3, tokens=20)
    tags = [
        {
            "prompt_len": 5,
            "response_len": len(mask),
            "seq_len": 5 + len(mask),
            "min_global_steps": chance.choice([STEP - 2, STEP - 1]),
            "max_global_steps": STEP - 1,
        }
        | ({"is_padding": True} if record is PADDING else {})
        for record, mask in zip(records, masks, strict=True)
    ]
    return batch, tags


def together(parts: list[StepBatch]) -> StepBatch:
    """The same rows as one part, put together row by row."""

    def rows(name: str) -> torch.Tensor:
        return jagged([row for batch in parts for row in getattr(batch.columns, name).unbind()])

    batch = StepBatch(
        [record for batch in parts for record in batch.records],
        sorted((t for batch in parts for t in batch.traces), key=lambda t: (t.task, t.row, t.session)),
        [record for batch in parts for record in batch.sequences],
    )
    batch.columns = Columns(rows("mask"), rows("old_log_probs"), rows("rollout_log_probs"))
    batch.entropy = torch.cat([each.entropy for each in parts if each.entropy is not None])
    batch.advantages = jagged(
        [row for each in parts if each.advantages is not None for row in each.advantages.unbind()]
    )
    batch.reference = jagged([row for each in parts if each.reference is not None for row in each.reference.unbind()])
    n = len(parts)
    prompts = len(batch.prompts)
    batch.groups = Counter(groups=prompts, idle=prompts, skipped=n)
    batch.groups.update(tokens_skipped=3 * n, tokens=20 * n)
    return batch


class Trainer(DittoTrainerSeparateAsync):
    """The trainer without Ray: what it reports of a step."""

    def __init__(self, parts: StepParts) -> None:
        self.parts = parts
        correction = {"rollout_is": "token", "rollout_is_threshold": 2.0}
        self.config = OmegaConf.create({"algorithm": {"rollout_correction": correction}})
        self.settings: Any = SimpleNamespace(objective=OBJECTIVES["sdpo_token"])
        self.alarm = SyncAlarm(bound=0.05)
        self.global_steps = STEP
        counted = {"judge/spent_usd": 0.5}
        self.judges: Any = SimpleNamespace(after_step=lambda _step, traces: counted | {"seen": len(traces)})
        self.resource_pool_manager = SimpleNamespace(get_n_gpus=lambda: 2)
        self._get_n_gpus_for_throughput = lambda: 3  # type: ignore[method-assign]

    def numbers(self, tags: list[dict[str, Any]]) -> dict[str, Any]:
        batch = SimpleNamespace(tags=tags)
        timing = {"step": 4.0, "gen": 1.0, "update_actor": 2.0}
        return self._step_metrics(batch) | self._step_numbers(batch, timing, epoch=0)


def test_a_step_in_parts_has_the_numbers_of_all_its_sessions_and_updates() -> None:
    chance = random.Random(5)
    (small, small_tags), (large, large_tags) = part(chance, ["a"]), part(chance, ["b", "c", "d"])
    in_parts, in_one = StepParts([small, large]), StepParts([together([small, large])])
    second = {**UPDATE, "actor/grad_norm": [6.0], "actor/lr": [5e-4], "actor/perf/max_gb": [4.0]}
    in_parts.add_update(1, UPDATE), in_parts.add_update(1, second)
    in_one.add_update(2, {name: UPDATE[name] + second[name] for name in UPDATE})
    numbers, expected = (Trainer(parts).numbers(small_tags + large_tags) for parts in (in_parts, in_one))
    corrected = {name for name in numbers if name.startswith("rollout_corr/")}
    assert corrected, "verl averages these over the parts; here they are of the whole step"
    assert {name: numbers[name] for name in expected} == pytest.approx(expected, rel=1e-5, nan_ok=True)
    assert {"ditto/kl_start", "ditto/share_tokens_skipped"} <= set(numbers)
    assert numbers["ditto/groups_idle"] == 4
    assert numbers["ditto/sessions"] == numbers["seen"] == 8
    assert numbers["ditto/sequences"] == sum(r.valid for r in small.sequences + large.sequences)
    assert numbers["actor/updates"] == 2 and numbers["actor/grad_norm"] == 4.0 and numbers["actor/lr"] == 5e-4
    assert numbers["actor/perf/max_gb"] == 4.0
    assert small.entropy is not None and large.entropy is not None
    assert numbers["actor/entropy"] == pytest.approx(torch.cat([small.entropy, large.entropy]).mean().item())
    assert numbers["training/off_policy/trajectory_staleness_worst/max"] == 1
    assert numbers["training/off_policy/trajectory_staleness/max"] == 0


def test_other_weights_in_the_engine_end_a_step_of_parts_too() -> None:
    chance = random.Random(5)
    (one, tags), (other, other_tags) = part(chance, ["a"]), part(chance, ["b"])
    assert other.columns is not None
    other.columns.rollout_log_probs.values().add_(0.3)
    with pytest.raises(WeightsOutOfSync):
        Trainer(StepParts([one, other])).numbers(tags + other_tags)


# ---- pi_old ------------------------------------------------------------------------------------------------------


def test_all_parts_of_a_step_take_pi_old_from_the_weights_at_its_beginning(monkeypatch: pytest.MonkeyPatch) -> None:
    """verl's method wraps ours: the calls to the workers, part by part."""
    calls: list[str] = []

    class Workers:
        def __getattr__(self, name: str) -> Any:
            return lambda *arguments: calls.append(" ".join([name, *(str(a) for a in arguments if a != "batch")]))

    lengths = [2, 3]
    values = {name: jagged([torch.rand(n + 4) for n in lengths]) for name in ("entropy", "log_probs")}
    values["rollout_log_probs"] = jagged([torch.rand(n) for n in lengths])
    values["response_mask"] = jagged([torch.ones(n, dtype=torch.int64) for n in lengths])
    queue = SimpleNamespace(kv_batch_get=lambda **_: values)
    monkeypatch.setattr(ditto.batch.queue, "tq", queue)
    monkeypatch.setattr(ditto.old_log_probs, "put_columns", lambda _batch, **columns: calls.extend(columns))
    trainer = object.__new__(DittoTrainerSeparateAsync)
    trainer.config = OmegaConf.create({"algorithm": {}, "actor_rollout_ref": {"rollout": {"temperature": 1.0}}})
    trainer.pi_old = PiOld("pass", "a test", frozenset(), entropy_in_update=True)
    trainer.actor_rollout_wg = Workers()
    trainer.parts = StepParts()
    batch: Any = type("Batch", (), {"__str__": lambda _: "", "extra_info": {}, "keys": [], "partition_id": "train"})()
    forward = ["compute_log_prob ", "old_log_probs"]
    for number in range(3):
        trainer.local_trigger_step = number
        trainer.parts.batches.append(StepBatch([PADDING, PADDING], []))
        trainer._compute_old_log_prob(batch, {})
    assert calls == [
        *("save_model_to_cpu 0", *forward),
        *("save_model_to_cpu 1", "restore_model_from_cpu 0", *forward, "restore_model_from_cpu 1", "clear_cpu_model 1"),
        *("save_model_to_cpu 2", "restore_model_from_cpu 0", *forward, "restore_model_from_cpu 2", "clear_cpu_model 2"),
    ]


@pytest.mark.parametrize("trainer", [DittoTrainerSync, DittoTrainerColocateAsync, DittoTrainerSeparateAsync])
def test_our_pi_old_takes_the_place_of_verls_innermost_method(trainer: type) -> None:
    methods = [cls for cls in trainer.__mro__ if "_compute_old_log_prob" in vars(cls)]
    ours = methods.index(OldLogProbs)
    assert methods[:ours] == ([PPOTrainerSeparateAsync] if trainer is DittoTrainerSeparateAsync else [])
