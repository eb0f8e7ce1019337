"""The three trainers that `trainer.v1.trainer_mode` names: the DITTO trainer on each of verl's V1 trainers.

Importing this module registers them with verl. docs/modes.md says when to use which.
"""

import logging

from verl.trainer.ppo.v1 import PPOTrainerColocateAsync, PPOTrainerSeparateAsync, PPOTrainerSync
from verl.trainer.ppo.v1.trainer_base import register_trainer

from ditto.old_log_probs import OldLogProbs
from ditto.trainer import DittoTrainer
from ditto.verl_hooks.actor_worker import SeparateActorWorker


@register_trainer("ditto_sync")
class DittoTrainerSync(DittoTrainer, PPOTrainerSync, OldLogProbs):
    """Rollout and update alternate on the same devices."""

    base_mode = "sync"


@register_trainer("ditto_colocate_async")
class DittoTrainerColocateAsync(DittoTrainer, PPOTrainerColocateAsync, OldLogProbs):
    """The rollout of the next step starts before the update of this one ends."""

    base_mode = "colocate_async"


@register_trainer("ditto_separate_async")
class DittoTrainerSeparateAsync(DittoTrainer, PPOTrainerSeparateAsync, OldLogProbs):
    """Rollout and update on devices of their own; a step trains `parameter_sync_step` parts between two syncs."""

    base_mode = "separate_async"
    actor_worker = SeparateActorWorker

    def init(self) -> None:
        super().init()
        for replica in self.standalone_server_manager.get_replicas():
            for number, worker in enumerate(replica.workers):
                self.liveness.watch_actor(f"weight receiver {number} of rollout server {replica.replica_rank}", worker)

    def _setup(self) -> None:
        # With hybrid_engine=false verl 0.9.1 calls `logger.info(..., flush=True)` here, which raises if it logs.
        logging.getLogger(PPOTrainerSeparateAsync.__module__).setLevel(logging.WARNING)
        super()._setup()
