"""The steps of a run with several policies: each trains its own rows, one after the other.

A step samples its plays once, all policies together. Then verl's part of a step (log-probs, advantages, update) runs
once for each policy that trains in it, with that policy's rows, objective and adapter, as if it were a step of a run in
which the others are frozen. The rows of policies that do not train are counted, and dropped.
"""

from __future__ import annotations

from abc import ABC
from collections.abc import Sequence
from functools import partial
from typing import Any

from omegaconf import DictConfig
from verl.trainer.ppo.v1 import PPOTrainer
from verl.utils.config import omega_conf_to_dataclass

from ditto.batch.queue import KVBatchMeta
from ditto.batch.step_batch import StepBatch
from ditto.objectives.losses import objective_loss
from ditto.old_log_probs import PiOld
from ditto.policies import Policy
from ditto.settings import Settings
from soul.errors import RunFailed


class PolicySteps(PPOTrainer, ABC):
    """The part of the trainer that knows of several policies. Without them, it does what verl does."""

    config: DictConfig
    settings: Settings  # of the policy that is being trained
    pi_old: PiOld
    policies: Sequence[Policy] = ()  # of the run; (): there is one
    policy: Policy | None = None  # that is being trained
    _dropout: Sequence[str] = ()  # what the actor's model drops in training
    _whole: Settings  # of all policies
    _asked_prompts: int
    _shares: list[tuple[Policy, KVBatchMeta]]  # of the step, not trained yet

    def _set_policies(self, settings: Settings) -> None:
        self.settings = self._whole = settings
        self.policies, self._shares = settings.policies, []
        if self.policies:
            from ditto.verl_hooks.policy_server import serve_policies  # imports vLLM's server

            serve_policies()

    def _build_replay_buffer(self) -> Any:
        buffer = super()._build_replay_buffer()
        if self.policies:
            self._sample_all, buffer.sample = buffer.sample, self._sample_share
        return buffer

    def _sample_share(self, *args: Any, **kwargs: Any) -> tuple[KVBatchMeta, dict[str, Any]]:
        """The rows of the next policy of the step. The step's first call waits for the sessions of all."""
        numbers: dict[str, Any] = {}
        if kwargs.get("partition_id") != "train":
            everything: tuple[KVBatchMeta, dict[str, Any]] = self._sample_all(*args, **kwargs)
            return everything
        if not self._shares:
            batch, numbers = self._sample_all(*args, **kwargs)
            super().on_sample_end()  # the servers sleep from here on
            self._shares = self._split(batch)
        policy, share = self._shares.pop(0)
        self._choose(policy)
        return share, numbers

    def on_sample_end(self) -> None:
        if not self.policies:
            super().on_sample_end()

    def _split(self, batch: KVBatchMeta) -> list[tuple[Policy, KVBatchMeta]]:
        """Each policy that trains in this step, with its rows; the first one also has those of which nobody learns."""
        step = StepBatch.fetch(batch)
        step.require_sessions(self.global_steps, self._asked_prompts, self.config.actor_rollout_ref.rollout.n)
        of_row = [record.policy for record in step.records]
        shares = [policy for policy in self._whole.in_turn(self.global_steps) if policy.name in of_row]
        if not shares:
            raise RunFailed(
                f"Step {self.global_steps}: no policy that trains in it plays any row. See policies.*.seats."
            )
        keys: dict[str, list[str]] = {policy.name: [] for policy in shares}
        for key, name in zip(batch.keys, of_row, strict=True):
            keys[name if name in keys else shares[0].name].append(key)
        return [(policy, batch.select_keys(keys[policy.name])) for policy in shares]

    def _choose(self, policy: Policy) -> None:
        """Let trainer and actor work for one policy."""
        self.policy, self.settings = policy, self._whole.of_policy(policy)
        self.pi_old = PiOld.chosen(self.config, self.settings, self._dropout)
        self.actor_rollout_wg.choose_policy(policy.adapter, not self._shares)  # the last one moves the learning rate
        self._set_loss()

    def _set_loss(self) -> None:
        actor = omega_conf_to_dataclass(self.config.actor_rollout_ref.actor)
        loss = partial(objective_loss, config=actor, objective=self.settings.objective, options=self.settings.options)
        self.actor_rollout_wg.set_loss_fn(loss)

    def _step_once(self, metrics: dict[str, Any], timing_raw: dict[str, float], sample_batch_size: int) -> KVBatchMeta:
        batches: list[KVBatchMeta] = []
        while not batches or self._shares:
            batches.append(super()._step_once(metrics, timing_raw, sample_batch_size))
        self.policy, self.settings = None, self._whole
        if len(batches) == 1:
            return batches[0]
        keys, tags = ([each for batch in batches for each in getattr(batch, name)] for name in ("keys", "tags"))
        return KVBatchMeta(partition_id=batches[0].partition_id, keys=keys, tags=tags)
