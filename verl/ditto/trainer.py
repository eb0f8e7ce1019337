"""The DITTO trainer: verl's V1 trainers with our advantages, mini-batches, checkpoints, traces and alarms.

What it changes, and why (traps of verl 0.9.1's V1 trainer):
- advantages: verl takes the last output of a session for all of them; here every sequence has its own kind, reward and
  group (`step_batch.py`, `advantages.py`);
- mini-batches: verl's number of optimizer updates grows with the number of sequences; here a mini-batch is a number of
  prompts (`layout.py`), and every part of the objective is aggregated over its own tokens (`loss_weights.py`);
- old log-probs of refined sequences in the base context are recomputed in that context, which is what verl's forward
  pass over the stored prompt does; `refined_old_logp=rollout` takes the sampled ones instead;
- missing sessions, which verl pads in silence, end the run; a stuck phase does too (`watchdog.py`);
- checkpoints are published atomically and are model paths (`checkpoint.py`, `export.py`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import transfer_queue as tq
from omegaconf import DictConfig, open_dict
from tensordict import TensorDict
from transfer_queue import KVBatchMeta
from verl.protocol import DataProto
from verl.trainer.ppo.padding_utils import upsample_batch_to_divisible_size
from verl.trainer.ppo.rollout_corr_helper import compute_rollout_correction_and_add_to_batch
from verl.trainer.ppo.v1 import PPOTrainer, PPOTrainerColocateAsync, PPOTrainerSeparateAsync, PPOTrainerSync
from verl.trainer.ppo.v1.trainer_base import register_trainer
from verl.utils.debug.metrics import calculate_debug_metrics
from verl.utils.metric import reduce_metrics
from verl.utils.py_functional import rename_dict
from verl.utils.seqlen_balancing import calculate_workload, get_seqlen_balanced_partitions, log_seqlen_unbalance
from verl.workers.utils.padding import response_from_nested, response_to_nested

from agents import tasks
from ditto import checkpoint, plugin
from ditto.export import export_model
from ditto.judge_watch import BudgetSpent, JudgeWatch
from ditto.layout import assign_mini_batches, lay_out, padded_rows
from ditto.liveness import Liveness
from ditto.settings import Settings
from ditto.step_batch import StepBatch
from ditto.step_metrics import session_metrics, summary_line
from ditto.traces import RunFolder
from ditto.watchdog import Watchdog


class MissingSessions(RuntimeError):
    """Sessions that were asked for never came back: verl would have replaced them by padding."""


def _nested(rows: list[torch.Tensor]) -> torch.Tensor:
    return torch.nested.as_nested_tensor(rows, layout=torch.jagged)


class DittoTrainer(PPOTrainer):
    """Mixed into each of verl's V1 trainers; `base_mode` is the mode verl knows it by."""

    base_mode: str

    @property
    def trainer_mode(self) -> str:
        """verl switches on the name of the mode, and knows only its own three."""
        return self.base_mode

    @trainer_mode.setter
    def trainer_mode(self, _registered_name: str) -> None:
        return None

    def __init__(self, config: DictConfig) -> None:
        plugin.require(config.trainer.device)
        self.settings = Settings.of(config)
        tasks.configure(self.settings.tasks)
        self.run_folder = RunFolder(self.settings.run_dir)
        self.liveness = Liveness()
        self.watchdog = Watchdog(self.settings.run_dir, self.settings.run.phase_timeout_s, self.liveness.died)
        self.judges = JudgeWatch(self.settings)
        self._step_batch: StepBatch | None = None
        self._asked_prompts = 0
        self._saved_step: int | None = None
        super().__init__(config)

    # ---- what the watchdog sees -------------------------------------------------------------------------------

    def init(self) -> None:
        self.watchdog.start()
        with self.watchdog.phase("start-up"):
            self.judges.start()
            super().init()
        for rank, worker in enumerate(self.actor_rollout_wg.workers):
            self.liveness.watch_actor(f"actor worker {rank}", worker)
        for replica in self.llm_server_manager.get_replicas():
            for server in replica.servers:
                self.liveness.watch_rollout_server(f"rollout server {replica.replica_rank}", server)

    def fit(self, agent_loop_manager: Any) -> None:
        for number, worker in enumerate(agent_loop_manager.agent_loop_workers):
            self.liveness.watch_actor(f"agent-loop worker {number}", worker)
        try:
            super().fit(agent_loop_manager)
        finally:
            self.watchdog.stop()

    def _step_once(self, metrics: dict[str, Any], timing_raw: dict[str, Any], sample_batch_size: int) -> KVBatchMeta:
        self._asked_prompts = sample_batch_size
        with self.watchdog.phase("rollout and update"):
            return super()._step_once(metrics, timing_raw, sample_batch_size)

    # ---- data -------------------------------------------------------------------------------------------------

    def _build_replay_buffer(self) -> Any:
        sampler = self.config.trainer.v1.sampler.custom_sampler
        if sampler.path == "pkg://ditto.replay" and self.base_mode != "sync":
            sampler.name = "PromptReplayBufferAsync"
        return super()._build_replay_buffer()

    def _init_dataloader(self) -> None:
        super()._init_dataloader()
        self.val_dataset.split = "val"

    # ---- one step ---------------------------------------------------------------------------------------------

    def _balance_batch(
        self,
        batch: KVBatchMeta,
        metrics: dict[str, Any],
        logging_prefix: str = "global_seqlen",
        keep_minibatch: bool = False,
    ) -> KVBatchMeta:
        """Order the rows by rank and mini-batch, and pad the mini-batches to one size."""
        step = StepBatch.fetch(batch)
        expected = self._asked_prompts * self.config.actor_rollout_ref.rollout.n
        if len(step.traces) != expected:
            raise MissingSessions(
                f"Step {self.global_steps} asked for {expected} sessions ({self._asked_prompts} prompts x rollout.n="
                f"{self.config.actor_rollout_ref.rollout.n}) and got {len(step.traces)}. An agent-loop worker failed "
                "outside of a session; its traceback is in the log of the AgentLoopWorkerTQ actors."
            )
        step.sort()
        dp = self.actor_rollout_wg._dispatch_info.get("actor") or self.actor_rollout_wg._query_dispatch_info("actor")
        self.actor_rollout_wg._dispatch_info["actor"] = dp
        ranks = max(dp) + 1
        mini_batch = assign_mini_batches(
            [record.prompt for record in step.records], self.config.actor_rollout_ref.actor.ppo_mini_batch_size
        )
        rows, updates = padded_rows(mini_batch, ranks)
        batch.reorder(step.order)
        batch = upsample_batch_to_divisible_size(batch, rows * updates, self.tokenizer.eos_token_id)
        lengths = [tag["seq_len"] for tag in batch.tags]

        def balance(lengths: list[int], ranks: int) -> list[list[int]]:
            if ranks == 1:
                return [list(range(len(lengths)))]
            return get_seqlen_balanced_partitions(
                calculate_workload(torch.tensor(lengths, dtype=torch.int64)), k_partitions=ranks, equal_size=True
            )

        layout = lay_out(mini_batch, lengths, ranks, rows, balance)
        batch.reorder(layout.order)
        step.arrange(layout)
        self._step_batch = step
        per_rank = rows * updates // ranks
        partitions = [list(range(r * per_rank, (r + 1) * per_rank)) for r in range(ranks)]
        metrics.update(log_seqlen_unbalance([lengths[i] for i in layout.order], partitions, prefix=logging_prefix))
        return batch

    def _compute_old_log_prob(self, batch: KVBatchMeta, metrics: dict[str, Any]) -> KVBatchMeta:
        """pi_old of every sequence in the context in which it is trained."""
        assert self._step_batch is not None
        rollout = self.config.actor_rollout_ref.rollout
        batch.extra_info.update(calculate_entropy=True, compute_loss=False, temperature=rollout.temperature)
        self.actor_rollout_wg.compute_log_prob(batch)
        data = tq.kv_batch_get(
            keys=batch.keys,
            partition_id=batch.partition_id,
            select_fields=["entropy", "log_probs", "response_mask", "responses", "rollout_log_probs"],
        )
        mask = data["response_mask"]
        data["old_log_probs"] = response_from_nested(data.pop("log_probs"), mask)
        data["entropy"] = response_from_nested(data.pop("entropy"), mask)
        tokens = mask.values().bool()
        metrics["actor/entropy"] = data["entropy"].values()[tokens].mean().item() if tokens.any() else 0.0
        self._compare_with_rollout(data, metrics)
        if self.settings.refined_old_logp == "rollout":
            data["old_log_probs"] = _nested(
                [
                    sampled if kind == "refined_base" else recomputed
                    for kind, sampled, recomputed in zip(
                        self._step_batch.kinds,
                        data["rollout_log_probs"].unbind(),
                        data["old_log_probs"].unbind(),
                        strict=True,
                    )
                ]
            )
        return tq.kv_batch_put(
            keys=batch.keys, partition_id=batch.partition_id, fields=data.select("old_log_probs", "entropy")
        )

    def _compare_with_rollout(self, data: TensorDict, metrics: dict[str, Any]) -> None:
        """Actor against rollout engine, where both looked at the same context; and the distance of the two contexts."""
        assert self._step_batch is not None
        kinds = self._step_batch.kinds
        same = [i for i, kind in enumerate(kinds) if kind in ("draft", "refined_feedback")]
        columns = ["old_log_probs", "rollout_log_probs", "response_mask", "responses"]
        if same:
            rows = {c: _nested([data[c].unbind()[i] for i in same]) for c in columns}
            padded = TensorDict({k: v.to_padded_tensor(0) for k, v in rows.items()}, batch_size=len(same))
            metrics.update(calculate_debug_metrics(DataProto(batch=padded)))
            difference = (padded["old_log_probs"] - padded["rollout_log_probs"]).abs()[padded["response_mask"].bool()]
            metrics["training/rollout_logprob_diff_mean"] = difference.mean().item()
        moved = [i for i, kind in enumerate(kinds) if kind == "refined_base"]
        if moved:
            gaps = [
                (
                    (data["rollout_log_probs"].unbind()[i] - data["old_log_probs"].unbind()[i])
                    * data["response_mask"].unbind()[i]
                )
                .sum()
                .item()
                for i in moved
            ]
            metrics["ditto/context_logprob_gap"] = sum(gaps) / len(gaps)

    def _compute_advantage(self, batch: KVBatchMeta, metrics: dict[str, Any]) -> KVBatchMeta:
        """Group advantages, loss weights and masks of every sequence; traces and metrics of every session."""
        step = self._step_batch
        assert step is not None
        data = tq.kv_batch_get(
            keys=batch.keys,
            partition_id=batch.partition_id,
            select_fields=["response_mask", "old_log_probs", "rollout_log_probs", "responses"],
        )
        mask = data["response_mask"]
        tokens = [int(row.sum()) for row in mask.unbind()]
        metrics.update(step.response_lengths(tokens))
        plan = step.plan(
            self.settings,
            normalize_std=self.config.algorithm.get("norm_adv_by_std_in_grpo", True),
            loss_agg_mode=self.config.actor_rollout_ref.actor.loss_agg_mode,
            tokens=tokens,
        )
        spread = [
            (row.float() * value, row.float() * weight, torch.full_like(row, 0).float())
            for row, value, weight in zip(mask.unbind(), plan.advantages, plan.weights, strict=True)
        ]
        for (_, _, score), reward in zip(spread, plan.rewards, strict=True):
            score[-1] = reward
        weights = _nested([w for _, w, _ in spread])
        correction = self._rollout_correction(data, metrics)
        if correction is not None:
            weights = _nested([w * c for w, c in zip(weights.unbind(), correction.unbind(), strict=True)])
        advantages = _nested([a for a, _, _ in spread])
        counted = _nested(step.counted_tokens(list(mask.unbind())))
        fields = {
            "response_mask": counted,
            "loss_mask": counted,
            "advantages": advantages,
            "returns": advantages,
            "rm_scores": _nested([s for _, _, s in spread]),
            # verl multiplies each token's loss by this: the part's weight times the rollout correction.
            "rollout_is_weights": weights,
        }
        self._report(step, plan.advantage_of, metrics)
        return tq.kv_batch_put(
            keys=batch.keys, partition_id=batch.partition_id, fields=TensorDict(fields, batch_size=len(batch))
        )

    def _rollout_correction(self, data: TensorDict, metrics: dict[str, Any]) -> torch.Tensor | None:
        """verl's importance weights against the rollout engine, where configured; 1 for refined sequences in the base
        context, whose rollout log-probs belong to another context."""
        assert self._step_batch is not None
        config = self.config.algorithm.get("rollout_correction")
        if not config or not config.get("rollout_is"):
            return None
        rollout = [
            old if kind == "refined_base" else sampled
            for kind, old, sampled in zip(
                self._step_batch.kinds, data["old_log_probs"].unbind(), data["rollout_log_probs"].unbind(), strict=True
            )
        ]
        padded = {
            "old_log_probs": data["old_log_probs"].to_padded_tensor(0.0),
            "rollout_log_probs": _nested(rollout).to_padded_tensor(0.0),
            "response_mask": data["response_mask"].to_padded_tensor(0),
        }
        corrected, numbers = compute_rollout_correction_and_add_to_batch(
            DataProto(batch=TensorDict(padded, batch_size=len(rollout))), config
        )
        metrics.update(numbers)
        return response_to_nested(corrected.batch["rollout_is_weights"], data["response_mask"])

    def _report(self, step: StepBatch, advantage_of: dict[str, dict[str, float]], metrics: dict[str, Any]) -> None:
        traces = [trace | {"advantages": advantage_of.get(trace["session"], {})} for trace in step.traces]
        self.run_folder.write_traces("step", self.global_steps, traces, part=self.local_trigger_step)
        metrics.update(session_metrics(traces))
        metrics["ditto/sessions"] = len(traces)
        metrics["ditto/sequences"] = sum(record.valid for record in step.records)
        metrics.update(self.judges.after_step(self.global_steps, traces))

    def _update_actor(self, batch: KVBatchMeta, metrics: dict[str, Any]) -> KVBatchMeta:
        """One epoch is `prompts / ppo_mini_batch_size` optimizer updates, whatever was refined."""
        step = self._step_batch
        assert step is not None and step.layout is not None
        if not any(record.valid for record in step.records):
            metrics["actor/updates"] = 0
            return batch
        actor = self.config.actor_rollout_ref.actor
        batch.extra_info.update(
            calculate_entropy=actor.calculate_entropy or actor.entropy_coeff != 0.0,
            distillation_use_topk=False,
            distillation_only=False,
            global_batch_size=step.layout.rows,
            mini_batch_size=step.layout.rows,
            epochs=actor.ppo_epochs,
            seed=actor.data_loader_seed,
            dataloader_kwargs={"shuffle": False},  # the layout is the order
            temperature=self.config.actor_rollout_ref.rollout.temperature,
        )
        output = rename_dict(self.actor_rollout_wg.update_actor(batch)["metrics"], "actor/")
        output["perf/mfu/actor"] = output.pop("actor/mfu")
        metrics.update(reduce_metrics(output))
        metrics["actor/updates"] = step.layout.updates * actor.ppo_epochs
        return batch

    def on_step_end(self) -> None:
        with self.watchdog.phase("weight sync"):
            super().on_step_end()
        stop = self.judges.stop
        if stop is None:
            return
        if self._saved_step != self.global_steps:
            self._save_checkpoint()
        if not isinstance(stop, BudgetSpent):
            raise stop
        print(stop, flush=True)
        self.total_training_steps = self.global_steps  # verl's loop ends with this step, as it does with the last one

    def _compute_metrics(self, batch: KVBatchMeta, metrics: dict[str, Any], *args: Any, **kwargs: Any) -> None:
        super()._compute_metrics(batch, metrics, *args, **kwargs)
        self.run_folder.log_metrics(self.global_steps, metrics)
        print(summary_line(self.global_steps, self.total_training_steps, metrics), flush=True)

    # ---- validation -------------------------------------------------------------------------------------------

    def _validate(self) -> dict[str, float]:
        with self.watchdog.phase("validation"):
            numbers: dict[str, float] = super()._validate()
        self.run_folder.log_metrics(self.global_steps, numbers)
        return numbers

    def _val_metrics_update(
        self,
        data_sources: list[str],
        sample_uids: list[str],
        reward_extra_infos_dict: dict[str, list[Any]],
        *args: Any,
        **kwargs: Any,
    ) -> dict[str, float]:
        """Set-level metrics from the sessions' own verdicts: failed sessions are counted, never scored 0."""
        traces = [json.loads(line) for line in reward_extra_infos_dict["trace"]]
        self.judges.after_validation(traces)
        self.run_folder.write_traces("val", self.global_steps, traces)
        numbers: dict[str, float] = {}
        for name in sorted({trace["task"] for trace in traces}):
            of_task = [trace for trace in traces if trace["task"] == name]
            task, drafts = tasks.load(name), [trace["draft"] for trace in of_task if trace["draft"]["valid"]]
            numbers[f"val/{name}/n"] = len(of_task)
            numbers[f"val/{name}/invalid_share"] = 1 - len(drafts) / len(of_task)
            summary = task.summarize([task.saved(draft) for draft in drafts])
            numbers |= {f"val/{name}/{metric}": value for metric, value in summary.items()}
            if "reward" in summary:
                numbers[f"val-core/{name}/reward/mean@1"] = summary["reward"]
        return numbers

    # ---- checkpoints ------------------------------------------------------------------------------------------

    @property
    def _checkpoint_root(self) -> Path:
        return Path(self.config.trainer.default_local_dir).absolute()

    @contextmanager
    def _writing_to(self, folder: Path) -> Iterator[None]:
        trainer = self.config.trainer
        final, keep = trainer.default_local_dir, trainer.max_actor_ckpt_to_keep
        with open_dict(self.config):
            # Pruning is ours too: verl would look for older checkpoints under the partial folder.
            trainer.default_local_dir, trainer.max_actor_ckpt_to_keep = str(folder), None
            try:
                yield
            finally:
                trainer.default_local_dir, trainer.max_actor_ckpt_to_keep = final, keep

    def _save_checkpoint(self) -> None:
        """Write beside, complete, flush, rename, then move the tracker."""
        root = self._checkpoint_root
        with self.watchdog.phase("checkpoint"):
            with self._writing_to(checkpoint.partial_dir(root)):
                super()._save_checkpoint()
            base = str(self.config.actor_rollout_ref.model.path)
            export_model(root / checkpoint.PARTIAL / f"global_step_{self.global_steps}", base)
            checkpoint.publish(root, self.global_steps)
            self._saved_step = self.global_steps
            checkpoint.prune(root, self.config.trainer.max_actor_ckpt_to_keep)


@register_trainer("ditto_sync")
class DittoTrainerSync(DittoTrainer, PPOTrainerSync):
    """Rollout and update alternate on the same devices."""

    base_mode = "sync"


@register_trainer("ditto_colocate_async")
class DittoTrainerColocateAsync(DittoTrainer, PPOTrainerColocateAsync):
    """The next step's rollout starts before the update ends."""

    base_mode = "colocate_async"


@register_trainer("ditto_separate_async")
class DittoTrainerSeparateAsync(DittoTrainer, PPOTrainerSeparateAsync):
    """Rollout and update on devices of their own."""

    base_mode = "separate_async"
