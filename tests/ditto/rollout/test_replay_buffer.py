"""verl's asynchronous replay buffer samples, replaces and restores as the trainer expects. The queue is in memory."""

from collections.abc import Sequence
from typing import Any

import pytest
from omegaconf import OmegaConf
from verl.trainer.ppo.v1 import replay_buffer as verl_buffer

import ditto.batch.queue
from ditto.batch.queue import drop_trained_rows
from ditto.rollout.replay_buffer import PromptReplayBufferAsync


class Queue:
    """verl's queue: by partition, the tags of each key."""

    def __init__(self) -> None:
        self.tags: dict[str, dict[str, dict[str, Any]]] = {}

    def kv_list(self, _partition: str | None = None) -> dict[str, dict[str, dict[str, Any]]]:
        return self.tags

    def kv_clear(self, keys: Sequence[str], partition_id: str) -> None:
        for key in keys:
            del self.tags[partition_id][key]


def waiting(prompts: Sequence[tuple[str, str, int]], rows: Sequence[str], monkeypatch: pytest.MonkeyPatch) -> Queue:
    """The queue with these prompts (name, status, step) and rows."""
    queue = Queue()
    queue.tags["train"] = {
        name: {"is_prompt": True, "status": status, "global_steps": step} for name, status, step in prompts
    } | {row: {"status": "success"} for row in rows}
    for module in (verl_buffer, ditto.batch.queue):
        monkeypatch.setattr(module, "tq", queue)
    return queue


def sampled(size: int) -> tuple[list[str], dict[str, Any], list[int]]:
    """The rows of the third step's batch, the metrics, and how many prompts were asked for in place of others."""
    asked: list[int] = []
    options = OmegaConf.create({})
    buffer = PromptReplayBufferAsync("separate_async", options, 2, "drop", options, refill_fn=asked.append)
    batch, numbers = buffer.sample(global_steps=3, partition_id="train", batch_size=size)
    return sorted(batch.keys), numbers, asked


def test_a_prompt_with_a_failed_session_reaches_the_trainer(monkeypatch: pytest.MonkeyPatch) -> None:
    """verl would replace it; here the trainer misses its session and ends the run (MissingSessions)."""
    rows = ["a_0_0", "a_1_0", "b_0_0"]
    waiting([("a", "finished", 3), ("b", "failure", 3), ("c", "running", 3)], rows, monkeypatch)
    assert sampled(2) == (rows, {}, [])


def test_a_prompt_that_waited_too_long_is_replaced_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    waiting([("old", "finished", 1), ("new", "finished", 3)], ["old_0_0", "new_0_0"], monkeypatch)
    keys, numbers, asked = sampled(1)
    assert (keys, asked) == (["new_0_0"], [1]) and numbers["training/off_policy/evicted_samples"] == 1


def test_a_restored_queue_forgets_what_was_trained(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sampling removes a prompt's own entry; its rows stay until the step has ended, so a checkpoint has them."""
    rows = ["a_0_0", "b_0_0", "trained_0_0", "trained_1_0"]
    queue = waiting([("a", "finished", 3), ("b", "running", 3)], rows, monkeypatch)
    for _ in range(2):
        drop_trained_rows()
        assert sorted(queue.tags["train"]) == ["a", "a_0_0", "b", "b_0_0"]
