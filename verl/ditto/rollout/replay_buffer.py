"""verl's replay buffers, with a short polling interval and with a filter of groups that knows the objective.

verl polls its queue every two seconds, which is longer than a whole rollout of a small model. Its setting for a custom
sampler lets us replace the buffer. The filter is `group_filter.py`; verl's buffers ask `_dapo_filtered_keys` which
finished groups to replace.
"""

from collections import Counter, defaultdict
from typing import Any

from verl.trainer.ppo.v1.replay_buffer import DAPO_FILTERED_REWARD_COUNTS_KEY, ReplayBuffer, ReplayBufferAsync

from ditto.batch.queue import tq
from ditto.rollout.group_filter import GroupFilter

Reasons = tuple[set[str], set[str], set[str], Counter[float]]  # verl's: groups that are stale, idle, failed; a table

POLL_INTERVAL_S = 0.2  # a poll lists every key of the queue: a few milliseconds for a thousand sessions


class _FiltersGroups:
    """Mixin for verl's buffers. Replaces groups without a learning signal, if the trainer has set `filter`."""

    filter: GroupFilter | None = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, poll_interval=POLL_INTERVAL_S, **kwargs)  # type: ignore[call-arg]

    def _dapo_filtered_keys(self, partition_id: str) -> tuple[set[str], Counter[float]]:
        """The finished groups to replace. verl's second value, a table of their rewards, stays empty."""
        buffer: Any = self
        if self.filter is None or partition_id == "val":
            return set(), Counter()
        unknown = self.filter.unknown(buffer.finished_keys[partition_id])
        keys: defaultdict[str, list[str]] = defaultdict(list)
        for key in buffer.partitions[partition_id] if unknown else ():
            prompt = key.split("_")[0]  # verl's keys are {prompt}_{session}_{index}
            if prompt in unknown:
                keys[prompt].append(key)
        for prompt, of_prompt in keys.items():
            data = tq.kv_batch_get(keys=of_prompt, partition_id=partition_id, select_fields=["extra_fields"])
            self.filter.judge(prompt, data.pop("extra_fields").tolist())
        return self.filter.to_drop(buffer.prompt_global_steps[partition_id]), Counter()

    def _evict_terminal_groups(
        self, global_steps: int, partition_id: str, eviction_reasons: Reasons
    ) -> tuple[set[str], int, int, dict[str, Any]]:
        buffer: Any = self
        stale, idle, failed, _ = eviction_reasons
        idle = idle - stale - failed
        if self.filter is not None:
            self.filter.drop(idle)
        evicted, stale_count, _, metrics = super()._evict_terminal_groups(  # type: ignore[misc]
            global_steps, partition_id, eviction_reasons
        )
        for name in [name for name in metrics if name == DAPO_FILTERED_REWARD_COUNTS_KEY or "filter_groups" in name]:
            del metrics[name]  # reported as ditto/groups_dropped
        if self.filter is not None and idle and buffer.trainer_mode == "sync":
            # The asynchronous buffer replaces whatever it evicts.
            ended = buffer.finished_keys[partition_id] | buffer.failure_keys[partition_id]
            missing = self.filter.prompts - len(ended) - _in_flight(buffer, partition_id)
            if missing > 0:
                buffer.refill_fn(missing)
        return evicted, stale_count, 0, metrics


def _in_flight(buffer: ReplayBuffer, partition_id: str) -> int:
    """Prompts that are still played."""
    return len(buffer.pending_keys[partition_id]) + len(buffer.running_keys[partition_id])


class PromptReplayBuffer(_FiltersGroups, ReplayBuffer):
    """The buffer of the synchronous trainer. With a filter it waits for every prompt before it takes a batch."""

    def _sampleable_terminal_keys(self, partition_id: str, eviction_reasons: Reasons) -> set[str]:
        if self.filter is not None and partition_id != "val" and _in_flight(self, partition_id):
            return set()
        keys: set[str] = super()._sampleable_terminal_keys(partition_id, eviction_reasons)
        return keys


class PromptReplayBufferAsync(_FiltersGroups, ReplayBufferAsync):
    """The buffer of the asynchronous trainers.

    A prompt with a session that failed outside of a task is sampled like any other: the trainer misses the session and
    ends the run. verl would put another prompt in its place, without a word.
    """

    def _terminal_eviction_reasons(self, global_steps: int, partition_id: str) -> Reasons:
        stale, filtered, _failed, values = super()._terminal_eviction_reasons(global_steps, partition_id)
        return stale, filtered, set(), values
