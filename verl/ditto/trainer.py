"""The DITTO trainer: verl's V1 trainers with our advantages, mini-batches, checkpoints, traces and alarms.

What it changes, and why (traps of verl 0.9.1's V1 trainer):
- advantages: verl takes the last output of a session for all of them; here every sequence has its own kind, reward and
  group (`step_batch.py`, `advantages.py`);
- mini-batches: verl's number of optimizer updates grows with the number of sequences; here a mini-batch is a number of
  prompts (`layout.py`), and every part of the objective is aggregated over its own tokens (`loss_weights.py`);
- old log-probs of refined sequences in the base context are recomputed in that context, which is what verl's forward
  pass over the stored prompt does; `refined_old_logp=rollout` takes the sampled ones instead;
- missing sessions, which verl pads in silence, end the run; a stuck phase does too (`watchdog.py`);
- checkpoints are published atomically and are model paths (`checkpoint.py`, `export.py`); a step's metrics are written
  before its checkpoint is published (`checkpoint_writer.py`), and a resume repeats a validation that a kill cut off.
"""

from __future__ import annotations

import logging
import time
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from omegaconf import DictConfig
from tensordict import TensorDict
from verl.protocol import DataProto
from verl.trainer.ppo.padding_utils import upsample_batch_to_divisible_size
from verl.trainer.ppo.rollout_corr_helper import compute_rollout_correction_and_add_to_batch
from verl.trainer.ppo.v1 import PPOTrainer, PPOTrainerColocateAsync, PPOTrainerSeparateAsync, PPOTrainerSync
from verl.trainer.ppo.v1.trainer_base import register_trainer
from verl.utils.config import omega_conf_to_dataclass
from verl.utils.metric import reduce_metrics
from verl.utils.py_functional import rename_dict
from verl.utils.seqlen_balancing import log_seqlen_unbalance
from verl.workers.utils.padding import response_to_nested

from ditto.batch import verl_metrics
from ditto.batch.counted_loss import COUNTED, counted_column, counted_loss
from ditto.batch.jagged import per_token, response_tokens, row_lengths, row_sums, with_values
from ditto.batch.minibatch_layout import assign_mini_batches, balanced, lay_out, padded_rows
from ditto.batch.queue import KVBatchMeta, tq
from ditto.batch.step_batch import Columns, StepBatch
from ditto.judging.watch import BudgetSpent, JudgeOutage, JudgeWatch
from ditto.rollout import sync_alarm
from ditto.rollout.sync_alarm import SyncAlarm
from ditto.run import stop_request
from ditto.run.actor_health import Liveness
from ditto.run.checkpoint_writer import CheckpointWriter
from ditto.run.run_folder import RunFolder
from ditto.run.step_metrics import session_metrics, summary_line, validation_metrics
from ditto.run.watchdog import Watchdog
from ditto.settings import Settings
from ditto.verl_hooks import plugin
from soul import tasks
from soul.errors import RunFailed
from soul.evaluate.run.gc_tuning import seldom_collected
from soul.record import SessionRecord

logger = logging.getLogger(__name__)

# What a forward pass needs of a sequence. Workers fetch these columns alone: neither traces nor rows of task files.
MODEL_COLUMNS = (
    "input_ids",
    "position_ids",
    "prompts",
    "responses",
    "response_mask",
    "loss_mask",
    "multi_modal_inputs",
)


class MissingSessions(RunFailed):
    """Sessions that were asked for never came back: verl would have replaced them by padding."""


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
        self.settings = Settings.from_config(config)
        tasks.configure(self.settings.tasks)
        self.run_folder = RunFolder(self.settings.run_dir)
        self.liveness = Liveness()
        self.watchdog = Watchdog(self.settings.run_dir, self.settings.run.phase_timeout_s, self.liveness.died)
        self.judges = JudgeWatch(self.settings)
        self.alarm = SyncAlarm.from_config(config)
        self._updated = False  # whether this step moved any weight
        self._servers: dict[str, Any] = {}
        self._step_batch: StepBatch | None = None
        self._asked_prompts = 0
        self.checkpoints = CheckpointWriter(config, self.watchdog.phase)
        self._trained: tuple[KVBatchMeta, dict[str, Any]] | None = None  # the step's batch and metrics, once trained
        super().__init__(config)

    # ---- what the watchdog sees -------------------------------------------------------------------------------

    def init(self) -> None:
        self.watchdog.start()
        with self.watchdog.phase("start-up"):
            self.judges.start()
            super().init()
        actor = omega_conf_to_dataclass(self.config.actor_rollout_ref.actor)
        self.actor_rollout_wg.set_loss_fn(partial(counted_loss, config=actor))
        for rank, worker in enumerate(self.actor_rollout_wg.workers):
            self.liveness.watch_actor(f"actor worker {rank}", worker)
        for manager in self._rollout_server_managers():  # separate_async has standalone servers besides
            for replica in manager.get_replicas():
                for number, server in enumerate(replica.servers):
                    name = f"rollout server {replica.replica_rank}" + (f", node {number}" if number else "")
                    self.liveness.watch_rollout_server(name, server)
                self._servers[f"rollout server {replica.replica_rank}"] = replica.servers[0]

    def fit(self, agent_loop_manager: Any) -> None:
        for number, worker in enumerate(agent_loop_manager.agent_loop_workers):
            self.liveness.watch_actor(f"agent-loop worker {number}", worker)
        self._settle_validation()
        try:
            with seldom_collected():  # a step's traces are a million objects: Python would walk them again and again
                super().fit(agent_loop_manager)
        finally:
            self.watchdog.stop()
        self._raise_outage()

    def _settle_validation(self) -> None:
        """A run that resumes validates before it trains only where a kill cut off the validation of its last step."""
        step, trainer = self.global_steps, self.config.trainer
        numbers = self.run_folder.metrics_of(step)
        if step == 0 or not numbers or trainer.val_only:  # no numbers: it goes on from another run's checkpoint
            return
        due = trainer.test_freq > 0 and (step % trainer.test_freq == 0 or step >= self.total_training_steps)
        trainer.val_before_train = due and not any(key.startswith("val/") for key in numbers)

    def step(self, metrics: dict[str, Any], timing_raw: dict[str, float]) -> KVBatchMeta:
        batch = super().step(metrics, timing_raw)
        self._trained = batch, metrics
        return batch

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
        step.sort(f"{self.config.actor_rollout_ref.actor.data_loader_seed}:{self.global_steps}")
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
        layout = lay_out(mini_batch, lengths, ranks, rows, balanced)
        batch.reorder(layout.order)
        step.arrange(layout)
        self._step_batch = step
        per_rank = rows * updates // ranks
        partitions = [list(range(r * per_rank, (r + 1) * per_rank)) for r in range(ranks)]
        metrics.update(log_seqlen_unbalance([lengths[i] for i in layout.order], partitions, prefix=logging_prefix))
        return batch

    def _compute_old_log_prob(self, batch: KVBatchMeta, metrics: dict[str, Any]) -> KVBatchMeta:
        """pi_old of every sequence in the context in which it is trained."""
        step = self._step_batch
        assert step is not None
        rollout = self.config.actor_rollout_ref.rollout
        batch.extra_info.update(calculate_entropy=True, compute_loss=False, temperature=rollout.temperature)
        batch.fields = list(MODEL_COLUMNS)
        self.actor_rollout_wg.compute_log_prob(batch)
        names = ["entropy", "log_probs", "response_mask", "rollout_log_probs"]
        data = tq.kv_batch_get(keys=batch.keys, partition_id=batch.partition_id, select_fields=names)
        mask = data["response_mask"]
        entropy = response_tokens(data["entropy"], mask).values()[mask.values().bool()]
        metrics["actor/entropy"] = entropy.mean().item() if len(entropy) else 0.0
        recomputed = Columns(mask, response_tokens(data["log_probs"], mask), data["rollout_log_probs"])
        self._compare_with_rollout(batch, recomputed, metrics)
        step.columns = recomputed
        if self.settings.refined_old_logp == "rollout":
            refined = per_token(step.is_kind("refined_base"), mask)
            old = torch.where(refined, recomputed.rollout_log_probs.values(), recomputed.old_log_probs.values())
            step.columns = replace(recomputed, old_log_probs=with_values(old, mask))
        self._put(batch, old_log_probs=step.columns.old_log_probs)
        return batch

    def _put(self, batch: KVBatchMeta, **columns: torch.Tensor) -> None:
        """Add columns to the step, for the workers of the update too."""
        fields = TensorDict(columns, batch_size=len(batch))
        tq.kv_batch_put(keys=batch.keys, partition_id=batch.partition_id, fields=fields)
        batch.fields = list(dict.fromkeys([*(batch.fields or []), *columns]))

    def _compute_ref_log_prob(self, batch: KVBatchMeta, metrics: dict[str, Any]) -> KVBatchMeta:
        super()._compute_ref_log_prob(batch, metrics)
        batch.fields = [*(batch.fields or []), "ref_log_prob"]
        return batch

    def _compare_with_rollout(self, batch: KVBatchMeta, columns: Columns, metrics: dict[str, Any]) -> None:
        """Actor against rollout engine, where both looked at the same context; and the distance of the two contexts."""
        step = self._step_batch
        assert step is not None
        old, sampled, mask = columns.old_log_probs, columns.rollout_log_probs, columns.mask
        refined = step.is_kind("refined_base")
        if any(refined):
            gap = (sampled.values() - old.values())[per_token(refined, mask) & mask.values().bool()].sum()
            metrics["ditto/context_logprob_gap"] = gap.item() / sum(refined)
        same_context = step.is_kind("draft", "refined_feedback")
        versions = [int(tag["min_global_steps"]) for tag in batch.tags]
        # Where rollouts of several versions meet (asynchronous modes), only the newest are by the actor's weights.
        newest = max((v for v, same in zip(versions, same_context, strict=True) if same), default=0)
        rows = [same and version == newest for same, version in zip(same_context, versions, strict=True)]
        difference, numbers = sync_alarm.distance(old, sampled, mask, rows)
        metrics.update(numbers)
        if difference is not None:
            metrics["training/rollout_logprob_diff_mean"] = difference
            # Prefetched rollouts are one sync behind (colocate_async): then the distance is no sign, `_check_sync` is.
            if newest >= self.global_steps - 1:
                self.alarm.check_distance(self.global_steps, difference)

    def _compute_advantage(self, batch: KVBatchMeta, metrics: dict[str, Any]) -> KVBatchMeta:
        """Group advantages, loss weights and masks of every sequence; traces and metrics of every session."""
        step = self._step_batch
        assert step is not None and step.columns is not None
        mask = step.columns.mask
        tokens = [int(count) for count in row_sums(mask)]
        metrics.update(step.response_lengths(tokens))
        step.planned = plan = step.plan(
            self.settings,
            normalize_std=self.config.algorithm.get("norm_adv_by_std_in_grpo", True),
            loss_agg_mode=self.config.actor_rollout_ref.actor.loss_agg_mode,
            tokens=tokens,
        )
        sampled = mask.values().float()
        weights = per_token(plan.weights, mask) * sampled
        correction = self._rollout_correction(step.columns, metrics)
        if correction is not None:
            weights = weights * correction
        step.advantages = with_values(per_token(plan.advantages, mask) * sampled, mask)
        # verl multiplies each token's loss by rollout_is_weights: the part's weight times the rollout correction.
        columns = {"advantages": step.advantages, "rollout_is_weights": with_values(weights, mask)}
        columns[COUNTED] = counted_column(plan.counted)
        counted = step.counted_tokens(mask)
        if counted is not mask:
            columns |= {"response_mask": counted, "loss_mask": counted}
        self._put(batch, **columns)
        self._report(step, plan.advantage_of, metrics)
        return batch

    def _rollout_correction(self, columns: Columns, metrics: dict[str, Any]) -> torch.Tensor | None:
        """verl's importance weights against the rollout engine, where configured: float32 of shape (all tokens,).

        They are 1 for refined sequences in the base context, whose rollout log-probs belong to another context.
        """
        config, mask = self.config.algorithm.get("rollout_correction"), columns.mask
        assert self._step_batch is not None
        if not config or not config.get("rollout_is") or not mask.values().any():  # every session may have failed
            return None
        old = columns.old_log_probs
        refined = per_token(self._step_batch.is_kind("refined_base"), mask)
        rollout = with_values(torch.where(refined, old.values(), columns.rollout_log_probs.values()), mask)
        padded = {
            "old_log_probs": old.to_padded_tensor(0.0),
            "rollout_log_probs": rollout.to_padded_tensor(0.0),
            "response_mask": mask.to_padded_tensor(0),
        }
        corrected, numbers = compute_rollout_correction_and_add_to_batch(
            DataProto(batch=TensorDict(padded, batch_size=len(row_lengths(mask)))), config
        )
        metrics.update(numbers)
        weights: torch.Tensor = response_to_nested(corrected.batch["rollout_is_weights"], mask).values()
        return weights

    def _report(self, step: StepBatch, advantage_of: dict[str, dict[str, float]], metrics: dict[str, Any]) -> None:
        traces = step.traces
        for trace in traces:
            trace.advantages = advantage_of.get(trace.session, {})
        self.run_folder.write_traces("step", self.global_steps, traces, part=self.local_trigger_step)
        metrics.update(session_metrics(traces))
        metrics["ditto/sessions"] = len(traces)
        metrics["ditto/sequences"] = sum(record.valid for record in step.records)
        metrics.update(self.judges.after_step(self.global_steps, traces))

    def _update_actor(self, batch: KVBatchMeta, metrics: dict[str, Any]) -> KVBatchMeta:
        """One epoch is `prompts / ppo_mini_batch_size` optimizer updates, whatever was refined."""
        step = self._step_batch
        assert step is not None and step.layout is not None
        self._updated = False
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
        self._updated = metrics["actor/grad_norm"] > 0 and metrics["actor/lr"] > 0
        return batch

    def on_step_end(self) -> None:
        start = time.perf_counter()
        with self.watchdog.phase("weight sync"):
            super().on_step_end()
            self._check_sync()
        logger.info("Weights of step %d are synced (%.1f s)", self.global_steps, time.perf_counter() - start)
        self._end_if_due()
        if isinstance(self.judges.stop, BudgetSpent):
            logger.warning("%s", self.judges.stop)

    def _raise_outage(self) -> None:
        """End the run where the judges are the reason; by now the step is recorded and its checkpoint published."""
        if isinstance(self.judges.stop, JudgeOutage):
            raise self.judges.stop

    def _end_if_due(self) -> None:
        """Make this step the last one where the driver got a signal or the judges fail; save it if there is time."""
        save_until = stop_request.save_until()
        if save_until is None and self.judges.stop is None:
            return
        in_time = save_until is None or time.time() + self.checkpoints.seconds < save_until
        if in_time and self.checkpoints.written_step != self.global_steps:
            self._save_checkpoint()
        self.total_training_steps = self.global_steps  # verl's loop ends with this step, as it does with the last one

    def on_train_begin(self) -> None:
        stop_request.report_first_step()
        self._check_sync()  # what the servers answer before the first update
        super().on_train_begin()
        resumed_from = self.global_steps - 1  # verl counts the first step before it calls this
        numbers = self.run_folder.metrics_of(resumed_from) if resumed_from > 0 else {}
        if numbers:  # a kill may have come after metrics.jsonl and before the console, W&B or TensorBoard
            self.logger.log(data=numbers, step=resumed_from)

    def _check_sync(self) -> None:
        """Whether the update reached every rollout server."""
        if self.alarm.max_unchanged is not None:
            answers = sync_alarm.ask(self._servers, self.tokenizer.encode(sync_alarm.PROBE_TEXT))
            self.alarm.check_change(self.global_steps, answers, updated=self._updated)

    def _compute_metrics(
        self, batch: KVBatchMeta, metrics: dict[str, Any], timing_raw: dict[str, float], global_steps: int, epoch: int
    ) -> None:
        metrics |= self._step_numbers(batch, timing_raw, epoch)
        self._record(metrics)
        print(summary_line(self.global_steps, self.total_training_steps, metrics), flush=True)

    def _step_numbers(self, batch: KVBatchMeta, timing_raw: dict[str, float], epoch: int) -> dict[str, Any]:
        """The metrics that need the whole step."""
        step, gpus = self._step_batch, self._get_n_gpus_for_throughput()
        assert step is not None and step.columns is not None and step.planned is not None
        turns = [record.turns for record in step.records]
        numbers = verl_metrics.step_metrics(
            batch.tags, turns, step.planned.rewards, step.advantages, step.columns.mask, timing_raw, gpus
        )
        numbers |= verl_metrics.staleness_metrics(batch.tags, self.global_steps)
        return numbers | {"training/global_step": self.global_steps, "training/epoch": epoch}

    def _record(self, metrics: dict[str, Any]) -> None:
        """Write the step's metrics, then publish its checkpoint: a kill in between repeats the step."""
        self.run_folder.log_metrics(self.global_steps, metrics)
        self.checkpoints.publish()

    # ---- validation -------------------------------------------------------------------------------------------

    def on_validate_begin(self) -> None:
        """A validation may take long: record and publish its step first."""
        if self._trained is not None:
            batch, metrics = self._trained
            epoch = (self.global_steps - 1) // self.steps_per_epoch
            self._record(metrics | self._step_numbers(batch, self.timing_raw, epoch))
            self._raise_outage()
        super().on_validate_begin()

    def _validate(self) -> dict[str, float]:
        """The numbers of a validation; none where the run ends without it. A resume then repeats it."""
        if stop_request.save_until() is not None:
            return {}
        start = time.perf_counter()
        with self.watchdog.phase("validation"):
            numbers: dict[str, float] = super()._validate()
        self._end_if_due()
        if isinstance(self.judges.stop, JudgeOutage):  # its sessions say nothing about the model
            return {}
        seconds = {"timing_s/testing": time.perf_counter() - start}
        self.run_folder.log_metrics(self.global_steps, numbers | seconds)
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
        traces = [SessionRecord.from_line(line, "a validation's trace") for line in reward_extra_infos_dict["trace"]]
        self.run_folder.write_traces("val", self.global_steps, traces)
        self.judges.after_validation(traces)
        return validation_metrics(traces)

    # ---- checkpoints ------------------------------------------------------------------------------------------

    def _save_checkpoint(self) -> None:
        """Write a complete checkpoint beside; `_record` publishes it."""
        self.checkpoints.write(self.global_steps, super()._save_checkpoint)


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
