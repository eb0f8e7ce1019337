"""A trainer whose weight syncs stop to arrive after the first step, without an error: verl issue 7495, in a test.

`trainer.v1.sampler.custom_sampler.path=pkg://tests.e2e.lost_sync` imports this in the trainer's process.
"""

from typing import Any

from verl.checkpoint_engine import CheckpointEngineManager

from ditto.rollout.replay_buffer import PromptReplayBuffer

_update_weights = CheckpointEngineManager.update_weights
LAST_SYNC = 1  # the step after which the engine still gets its weights


def _until_last_sync(self: Any, global_steps: int | None = None, *args: Any, **kwargs: Any) -> Any:
    if (global_steps or 0) <= LAST_SYNC:
        return _update_weights(self, global_steps, *args, **kwargs)
    return None


CheckpointEngineManager.update_weights = _until_last_sync

__all__ = ["PromptReplayBuffer"]
