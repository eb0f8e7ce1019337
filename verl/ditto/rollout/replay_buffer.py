"""verl's replay buffer, asked often enough that a step waits for real work only, and no oftener than the queue bears.

verl polls its queue every two seconds (a custom sampler is its public door), longer than a whole rollout of a small
model. A poll lists every key, so it takes longer the more sessions a step has, and the pause between two polls grows
with it.
"""

import time
from typing import Any

from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer, ReplayBufferAsync

POLL_INTERVAL_S = 0.05  # the shortest pause between two polls
PAUSE_PER_POLL = 20.0  # and at least so many times what a poll takes: polling costs 5 % of the driver at the most


class _Paced:
    """Mixed into verl's buffers: adapts `poll_interval`, which verl sleeps between two polls."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, poll_interval=POLL_INTERVAL_S, **kwargs)  # type: ignore[call-arg]

    def _sync_metadata_from_transfer_queue(self) -> None:
        start = time.perf_counter()
        super()._sync_metadata_from_transfer_queue()  # type: ignore[misc]
        self.poll_interval = max(POLL_INTERVAL_S, PAUSE_PER_POLL * (time.perf_counter() - start))


class PromptReplayBuffer(_Paced, ReplayBuffer):
    """For the synchronous trainer."""


class PromptReplayBufferAsync(_Paced, ReplayBufferAsync):
    """For the asynchronous trainers."""
