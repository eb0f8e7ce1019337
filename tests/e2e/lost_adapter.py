"""A trainer that stops sending the second policy's adapter after the first step, without an error.

`trainer.v1.sampler.custom_sampler.path=pkg://tests.e2e.lost_adapter` imports this in the trainer's process.
"""

from typing import Any

from verl.single_controller.base.decorator import Dispatch, register

from ditto.rollout.replay_buffer import PromptReplayBuffer
from ditto.trainer import DittoTrainer
from ditto.verl_hooks.actor_worker import ActorWorker

LAST_SYNC = 1  # the step after which the engine still gets both


class LosingWorker(ActorWorker):
    @register(dispatch_mode=Dispatch.ONE_TO_ALL, blocking=False)
    async def update_weights(self, global_steps: int | None = None, mode: str = "auto") -> Any:
        if (global_steps or 0) > LAST_SYNC:
            self.config.model.lora.policies = list(self.config.model.lora.policies)[:1]
        return await super().update_weights(global_steps=global_steps, mode=mode)


DittoTrainer.actor_worker = LosingWorker

__all__ = ["PromptReplayBuffer"]
