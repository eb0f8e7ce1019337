"""What the asynchronous buffer samples: prompts with a failed session too, and nothing that was trained before."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import verl.trainer.ppo.v1.replay_buffer as verls
from omegaconf import OmegaConf

import ditto.batch.queue
from ditto.batch.queue import drop_trained_rows
from ditto.rollout.replay_buffer import PromptReplayBufferAsync


class Queue:
    """verl's queue: key -> tag, of the training partition."""

    def __init__(self, *prompts: tuple[str, str, int], rows: tuple[str, ...] = ()) -> None:
        self.tags: dict[str, dict[str, Any]] = {
            name: {"is_prompt": True, "status": status, "global_steps": step} for name, status, step in prompts
        }
        self.tags |= {row: {"status": "success"} for row in rows}

    def kv_list(self, partition_id: str | None = None) -> dict[str, dict[str, dict[str, Any]]]:
        return {"train": dict(self.tags)}

    def kv_clear(self, keys: list[str], partition_id: str) -> None:
        for key in keys:
            del self.tags[key]


def buffer(asked: list[int]) -> PromptReplayBufferAsync:
    return PromptReplayBufferAsync(
        trainer_mode="separate_async",
        trainer_config=OmegaConf.create({}),
        max_off_policy_threshold=2,
        max_off_policy_strategy="drop",
        sampler_kwargs=OmegaConf.create({}),
        refill_fn=asked.append,
    )


def test_a_prompt_with_a_failed_session_reaches_the_trainer(monkeypatch: pytest.MonkeyPatch) -> None:
    """verl would replace it; here the trainer misses its session and ends the run (MissingSessions)."""
    queue = Queue(("a", "finished", 3), ("b", "failure", 3), ("c", "running", 3), rows=("a_0_0", "a_1_0", "b_0_0"))
    monkeypatch.setattr(verls, "tq", queue)
    asked: list[int] = []
    batch, metrics = buffer(asked).sample(global_steps=3, partition_id="train", batch_size=2)
    assert sorted(batch.keys) == ["a_0_0", "a_1_0", "b_0_0"] and asked == [] and metrics == {}


def test_a_prompt_that_waited_too_long_is_replaced_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    queue = Queue(("old", "finished", 1), ("new", "finished", 3), rows=("old_0_0", "new_0_0"))
    monkeypatch.setattr(verls, "tq", queue)
    asked: list[int] = []
    batch, metrics = buffer(asked).sample(global_steps=3, partition_id="train", batch_size=1)
    assert list(batch.keys) == ["new_0_0"] and asked == [1]
    assert metrics["training/off_policy/evicted_samples"] == 1


def test_a_restored_queue_forgets_what_was_trained(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sampling removes a prompt's own entry; its rows stay until the step has ended, so a checkpoint has them."""
    queue = Queue(("a", "finished", 3), ("b", "running", 3), rows=("a_0_0", "b_0_0", "trained_0_0", "trained_1_0"))
    monkeypatch.setattr(ditto.batch.queue, "tq", SimpleNamespace(kv_list=queue.kv_list, kv_clear=queue.kv_clear))
    drop_trained_rows()
    assert sorted(queue.tags) == ["a", "a_0_0", "b", "b_0_0"]
    drop_trained_rows()
    assert len(queue.tags) == 4
