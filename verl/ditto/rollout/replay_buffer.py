"""verl's replay buffer with an adaptive polling interval: short, so that steps do not wait, but never a burden.

verl polls its queue every two seconds, which is longer than a whole rollout of a small model. Its setting for a custom
sampler lets us replace the buffer. A poll lists every key of the queue, so it takes longer with more sessions per step;
the pause between two polls grows accordingly.
"""

import time
from typing import Any

from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer, ReplayBufferAsync

POLL_INTERVAL_S = 0.05  # shortest pause between two polls
PAUSE_PER_POLL = 20.0  # a pause is at least this many times a poll's duration: polling costs the driver at most 5 %


class _Paced:
    """Mixin for verl's buffers. Adapts `poll_interval`, the seconds that verl sleeps between two polls."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, poll_interval=POLL_INTERVAL_S, **kwargs)  # type: ignore[call-arg]

    def _sync_metadata_from_transfer_queue(self) -> None:
        start = time.perf_counter()
        super()._sync_metadata_from_transfer_queue()  # type: ignore[misc]
        self.poll_interval = max(POLL_INTERVAL_S, PAUSE_PER_POLL * (time.perf_counter() - start))


class PromptReplayBuffer(_Paced, ReplayBuffer):
    """The buffer of the synchronous trainer."""


class PromptReplayBufferAsync(_Paced, ReplayBufferAsync):
    """The buffer of the asynchronous trainers."""
