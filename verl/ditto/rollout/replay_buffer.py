"""verl's replay buffers with a short polling interval.

verl polls its queue every two seconds, which is longer than a whole rollout of a small model. Its setting for a custom
sampler lets us replace the buffer.
"""

from collections import Counter
from typing import Any

from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer, ReplayBufferAsync

Reasons = tuple[set[str], set[str], set[str], Counter[float]]  # verl's: groups that are stale, idle, failed; a table

POLL_INTERVAL_S = 0.2  # a poll lists every key of the queue: a few milliseconds for a thousand sessions


class PromptReplayBuffer(ReplayBuffer):
    """The buffer of the synchronous trainer."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, poll_interval=POLL_INTERVAL_S, **kwargs)


class PromptReplayBufferAsync(ReplayBufferAsync):
    """The buffer of the asynchronous trainers.

    A prompt with a session that failed outside of a task is sampled like any other: the trainer misses the session and
    ends the run. verl would put another prompt in its place, without a word.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, poll_interval=POLL_INTERVAL_S, **kwargs)

    def _terminal_eviction_reasons(self, global_steps: int, partition_id: str) -> Reasons:
        stale, filtered, _failed, values = super()._terminal_eviction_reasons(global_steps, partition_id)
        return stale, filtered, set(), values
