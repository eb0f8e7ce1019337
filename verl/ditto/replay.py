"""verl's replay buffer, asked often enough that a step waits for real work only.

verl polls its queue every two seconds (a custom sampler is its public door), longer than a whole rollout of a small
model.
"""

from typing import Any

from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer, ReplayBufferAsync

POLL_INTERVAL_S = 0.05


class PromptReplayBuffer(ReplayBuffer):
    """For the synchronous trainer."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, poll_interval=POLL_INTERVAL_S, **kwargs)


class PromptReplayBufferAsync(ReplayBufferAsync):
    """For the asynchronous trainers."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, poll_interval=POLL_INTERVAL_S, **kwargs)
