"""The DITTO trainer: verl's V1 trainers with our advantages, mini-batches, checkpoints, traces and alarms.

What it changes in verl 0.9.1's V1 trainer, and why:
- advantages: verl gives all outputs of a session the advantage of the last one; here every sequence has its own kind,
  reward and group (`batch/loss_plan.py`, `objectives/advantages.py`);
- mini-batches: verl's number of optimizer updates grows with the number of sequences; here a mini-batch is a number of
  prompts (`batch/minibatch_layout.py`), and every part of the objective is averaged over its own tokens
  (`objectives/losses.py`); with `skip_idle`, sequences without a learning signal cost no forward pass;
- old log-probs are computed in the context in which a sequence is trained (`old_log_probs.py`);
- the parts of a step are reported together (`batch/step_parts.py`);
- missing sessions, which verl pads without a message, end the run; so does a stuck phase (`run/watchdog.py`);
- checkpoints are published atomically and are model paths (`run/checkpoint.py`, `run/export.py`); a step's metrics are
  written before its checkpoint is published (`run/checkpoint_writer.py`);
- a validation scores no failed session, and a resumed run repeats one that was interrupted (`validation.py`).
"""

import logging
import shutil
import time
from collections.abc import Sequence
from typing import Any

import ray
from omegaconf import DictConfig
from ray.exceptions import RayError
from verl.trainer.ppo.padding_utils import upsample_batch_to_divisible_size
from verl.trainer.ppo.utils import Role
from verl.utils.py_functional import rename_dict
from verl.utils.seqlen_balancing import log_seqlen_unbalance
from verl.workers.engine_workers import ActorRolloutRefWorker

from ditto.batch import metrics as batch_metrics
from ditto.batch.minibatch_layout import (
    assign_mini_batches,
    balance_by_length,
    balance_groups,
    build_layout,
    padded_rows,
)
from ditto.batch.queue import KVBatchMeta, drop_trained_rows, fetch, put_columns, tq
from ditto.batch.step_batch import StepBatch
from ditto.batch.step_parts import StepParts
from ditto.batch.trace_details import note_correction, note_log_probs, note_plan
from ditto.judging.watch import BudgetSpent, JudgeWatch
from ditto.model.prefix_tree.eligibility import ineligible_reason
from ditto.model.prefix_tree.packing import USE_PREFIX_TREE
from ditto.old_log_probs import PiOld, measure_by_update
from ditto.policies import Policy
from ditto.policy_steps import PolicySteps
from ditto.rollout import sync_alarm
from ditto.rollout.sync_alarm import SyncAlarm
from ditto.run import stop_signals
from ditto.run.alarms import of_policy, raise_alarms
from ditto.run.checkpoint_writer import CheckpointWriter
from ditto.run.diagnostics import assistant_turns, step_diagnostics
from ditto.run.finite_steps import FiniteSteps, are_finite, require_finite_weights
from ditto.run.live_traces import folder_of, open_live
from ditto.run.run_folder import RunFolder, set_logger_folders, write_end_report
from ditto.run.step_metrics import first_look, rollout_times, session_metrics, summary_line
from ditto.run.watchdog import RESEND_S, Liveness, Watchdog
from ditto.settings import Settings
from ditto.validation import Validation
from ditto.verl_hooks import plugin
from ditto.verl_hooks.actor_worker import ActorWorker
from soul import tasks
from soul.errors import RunFailed
from soul.host_resources import infrequent_gc

logger = logging.getLogger(__name__)
NOTICE_S = RESEND_S + 5.0  # within which a dead actor is noticed


class DittoTrainer(PolicySteps, Validation):
    """Mixed into each of verl's V1 trainers. `base_mode` is verl's name of that trainer's mode."""

    base_mode: str
    total_training_steps: int  # verl's: the number of the last step
    actor_worker: type[ActorRolloutRefWorker] = ActorWorker
    _looked: bool = False  # whether this process has told what its first step saw
    as_trees: bool = False  # log-prob and update passes compute the beginning of a group's rows once

    @property
    def trainer_mode(self) -> str:
        """verl branches on the name of the mode and knows only its own three, not the registered one."""
        return self.base_mode

    @trainer_mode.setter
    def trainer_mode(self, _registered_name: str) -> None:
        return None

    def __init__(self, config: DictConfig) -> None:
        plugin.require(config.trainer.device)
        self._set_policies(Settings.from_config(config))
        tasks.configure(self.settings.tasks)
        self.run_folder = RunFolder(self.settings.run_dir)
        self.liveness = Liveness()
        self.watchdog = Watchdog(self.settings.run_dir, self.settings.run.phase_timeout_s, self.liveness.died)
        self.judges = JudgeWatch(self.settings)
        self.alarm = SyncAlarm.from_config(config)
        against = ineligible_reason(config, self.settings)
        self.as_trees = against is None
        logger.info("Prefix trees: %s", "on" if against is None else f"off, because {against}")
        self.parts = StepParts()  # of this step
        self.finite = FiniteSteps()
        self._servers: dict[str, Any] = {}
        self._idle_keys: list[str] = []  # of the step's rows that are skipped
        self._asked_prompts = 0
        self.checkpoints = CheckpointWriter(config, self.watchdog.phase)
        self._trained: tuple[KVBatchMeta, dict[str, Any]] | None = None  # the step's batch and metrics, once trained
        super().__init__(config)

    # ---- start and end ------------------------------------------------------------------------------------------

    def init(self) -> None:
        set_logger_folders(self.settings.run_dir, self.config.trainer.logger)
        self.watchdog.start()
        with self.watchdog.phase("start-up"):
            super().init()
            self._dropout = self.actor_rollout_wg.active_dropout()[0]
            self.pi_old = PiOld.chosen(self.config, self.settings, self._dropout)
            logger.info("pi_old: %s (%s)", self.pi_old.source, self.pi_old.why)
        self._set_loss()
        for rank, worker in enumerate(self.actor_rollout_wg.workers):
            self.liveness.watch_actor(f"actor worker {rank}", worker)
        for manager in self._rollout_server_managers():  # separate_async has standalone servers besides
            self._servers |= self.liveness.watch_replicas(manager.get_replicas())

    def on_init_end(self) -> None:
        """Load teachers while the rollout servers still sleep, as the memory plan assumes."""
        self.actor_rollout_wg.load_teachers(self.settings.expert_teachers)
        super().on_init_end()

    def _init_resource_pool_mgr(self) -> None:
        super()._init_resource_pool_mgr()
        for role in {Role.Actor, Role.ActorRollout, Role.ActorRolloutRef} & set(self.role_worker_mapping):
            self.role_worker_mapping[role] = ray.remote(self.actor_worker)

    def fit(self, agent_loop_manager: Any) -> None:
        for number, worker in enumerate(agent_loop_manager.agent_loop_workers):
            self.liveness.watch_actor(f"agent-loop worker {number}", worker)
        self._settle_validation()
        open_live(self.run_folder.folder)
        try:
            with infrequent_gc():  # a step's traces are a million objects, which each full collection would walk
                super().fit(agent_loop_manager)
        except RayError:
            with self.watchdog.phase("failure"):  # if an actor has died, the watchdog will say which one
                time.sleep(NOTICE_S)
            raise
        finally:
            self.watchdog.stop()
            if stop_signals.save_until() is None:  # a stopped run has no time for it
                write_end_report(self.run_folder.folder)
        shutil.rmtree(folder_of(self.run_folder.folder), ignore_errors=True)  # sessions that no step trained
        self._raise_outage()

    def step(self, metrics: dict[str, Any], timing_raw: dict[str, float]) -> KVBatchMeta:
        self._idle_keys, self.parts = [], StepParts()
        batch = super().step(metrics, timing_raw)
        metrics.update(self._step_metrics(batch) | {"training/started": self.parts.rollouts[0][0]})
        self.finite.note(self.global_steps, are_finite(metrics, "actor/grad_norm"))
        if self._idle_keys:  # verl clears the queue of the rows that it knows of
            tq.kv_clear(keys=self._idle_keys, partition_id=batch.partition_id)
        self._trained = batch, metrics
        return batch

    def _step_once(self, metrics: dict[str, Any], timing_raw: dict[str, Any], sample_batch_size: int) -> KVBatchMeta:
        self._asked_prompts = sample_batch_size
        start, earlier_parts = time.time(), timing_raw.get("gen", 0.0)
        with self.watchdog.phase("rollout and update"):
            batch = super()._step_once(metrics, timing_raw, sample_batch_size)
        self.parts.rollouts.append((start, start + timing_raw["gen"] - earlier_parts))
        return batch

    # ---- data -------------------------------------------------------------------------------------------------

    def _build_replay_buffer(self) -> Any:
        sampler = self.config.trainer.v1.sampler.custom_sampler
        if sampler.path == "pkg://ditto.rollout.replay_buffer" and self.base_mode != "sync":
            sampler.name = "PromptReplayBufferAsync"
        return super()._build_replay_buffer()

    # ---- one step ---------------------------------------------------------------------------------------------

    def _balance_batch(
        self,
        batch: KVBatchMeta,
        metrics: dict[str, Any],
        logging_prefix: str = "global_seqlen",
        keep_minibatch: bool = False,
    ) -> KVBatchMeta:
        """Order the rows by rank and mini-batch, and pad all mini-batches to the same size. Raises MissingSessions."""
        step = StepBatch.fetch(batch)
        if self.policy is None:
            step.require_sessions(self.global_steps, self._asked_prompts, self.config.actor_rollout_ref.rollout.n)
        else:
            batch, others = step.of_policy(batch, self.policy.name)
            self._idle_keys += others
        step.sort(f"{self.config.actor_rollout_ref.actor.data_loader_seed}:{self.global_steps}")
        dp = self.actor_rollout_wg._dispatch_info.get("actor") or self.actor_rollout_wg._query_dispatch_info("actor")
        self.actor_rollout_wg._dispatch_info["actor"] = dp
        ranks = max(dp) + 1
        mini_batch = assign_mini_batches(
            [record.asked for record in step.records], self.config.actor_rollout_ref.actor.ppo_mini_batch_size
        )
        batch.reorder(step.order)
        actor = self.config.actor_rollout_ref.actor
        step.plan(mini_batch, self.settings, actor.loss_agg_mode, actor.loss_scale_factor or 1.0)
        # KL and entropy terms need every row.
        kl_term = actor.use_kl_loss and actor.kl_loss_coef != 0.0  # with coefficient 0 the KL is only measured
        regularised = bool(kl_term or actor.entropy_coeff)
        note_plan(step, self.settings.objective, regularised=regularised)
        if self.settings.options.skip_idle and not regularised:
            mini_batch, batch, idle = step.without_idle_rows(batch, mini_batch)
            self._idle_keys += idle
        rows, updates = padded_rows(mini_batch, ranks)
        batch = upsample_batch_to_divisible_size(batch, rows * updates, self.tokenizer.eos_token_id)
        lengths = [tag["seq_len"] for tag in batch.tags]
        if self.as_trees:
            layout = build_layout(mini_batch, step.row_sizes(lengths), ranks, rows, balance_groups)
        else:
            layout = build_layout(mini_batch, lengths, ranks, rows, balance_by_length)
        batch.extra_info[USE_PREFIX_TREE] = self.as_trees
        batch.reorder(layout.order)
        step.arrange(layout)
        self.parts.batches.append(step)
        per_rank = rows * updates // ranks
        partitions = [list(range(r * per_rank, (r + 1) * per_rank)) for r in range(ranks)]
        metrics.update(log_seqlen_unbalance([lengths[i] for i in layout.order], partitions, prefix=logging_prefix))
        return batch

    def _compute_ref_log_prob(self, batch: KVBatchMeta, metrics: dict[str, Any]) -> KVBatchMeta:
        super()._compute_ref_log_prob(batch, metrics)
        batch.fields = [*(batch.fields or []), "ref_log_prob"]
        self.parts.current.reference = fetch(batch, "ref_log_prob")["ref_log_prob"]
        return batch

    def _compute_advantage(self, batch: KVBatchMeta, metrics: dict[str, Any]) -> KVBatchMeta:
        """Compute what the loss needs of every sequence."""
        step = self.parts.current
        assert step.columns is not None
        correction = step.correction(self.config.algorithm.get("rollout_correction"))
        if correction is not None:
            metrics.update(correction[1])
        factors = correction[0] if correction else None
        put_columns(batch, **step.loss_columns(factors))
        if factors is not None:
            note_correction(step, factors)
        return batch

    def _update_actor(self, batch: KVBatchMeta, metrics: dict[str, Any]) -> KVBatchMeta:
        """Train, and write the traces of every session, which hold what the update knows of them."""
        step = self.parts.current
        if any(record.valid for record in step.records):
            self._train(batch, step)
            measure_by_update(self.actor_rollout_wg, self.pi_old, self.parts, batch)
        note_log_probs(step)
        self.run_folder.write_traces("step", self.global_steps, step.traces, part=len(self.parts.batches) - 1)
        return batch

    def _train(self, batch: KVBatchMeta, step: StepBatch) -> None:
        """One epoch is `prompts / ppo_mini_batch_size` optimizer updates, however many drafts were refined."""
        assert step.layout is not None
        actor = self.config.actor_rollout_ref.actor
        batch.extra_info.update(
            calculate_entropy=(
                actor.calculate_entropy
                or actor.entropy_coeff != 0.0
                or (step.measured is not None and self.pi_old.entropy_in_update)
            ),
            distillation_use_topk=False,
            distillation_only=False,
            global_batch_size=step.layout.rows,
            mini_batch_size=step.layout.rows,
            epochs=actor.ppo_epochs,
            seed=actor.data_loader_seed,
            dataloader_kwargs={"shuffle": False},  # the layout is the order
            temperature=self.config.actor_rollout_ref.rollout.temperature,
            distillation=self.settings.distillation,
        )
        output = rename_dict(self.actor_rollout_wg.update_actor(batch)["metrics"], "actor/")
        mfu = output.pop("actor/mfu")  # counts tokens that trees never compute, and knows no CPU's peak
        if not self.as_trees and self.config.trainer.device != "cpu":
            output["perf/mfu/actor"] = mfu
        self.parts.add_update(step.layout.updates * actor.ppo_epochs, output)

    def _step_metrics(self, batch: KVBatchMeta) -> dict[str, Any]:
        """The metrics of the step's sessions, sequences and updates, over all its parts."""
        step = self.parts.joined()
        numbers: dict[str, Any] = session_metrics(step.traces) | step_diagnostics(step.traces)
        numbers |= rollout_times(step.traces, self.parts.rollouts)
        numbers["ditto/sessions"] = len(step.traces)
        numbers |= batch_metrics.sequences(step, teaches_feedback=self.settings.objective.teacher == "feedback")
        if step.entropy is not None and len(step.entropy):
            numbers["actor/entropy"] = step.entropy.mean().item()
        correction = self.config.algorithm.get("rollout_correction")
        if len(self.parts.batches) > 1 and step.columns is not None:
            weighed = step.correction(correction)
            numbers |= weighed[1] if weighed is not None else {}
        numbers |= batch_metrics.groups(step.groups) | batch_metrics.kl_to_start(step)
        versions = [int(tag["min_global_steps"]) for tag in batch.tags]
        numbers |= self._policy_metrics(versions)
        numbers |= batch_metrics.context_gap(step) | self.alarm.check_rollout(self.global_steps, step, versions)
        numbers |= self.judges.after_step(self.global_steps, step.traces)
        return numbers | self.parts.update_metrics()

    def _policy_metrics(self, versions: Sequence[int]) -> dict[str, Any]:
        """The numbers of each policy's sessions, and of those that trained, the distance from the rollout engine."""
        numbers: dict[str, Any] = {}
        trained = {part.policy: part for part in self.parts.batches}
        own: dict[str, Sequence[int]] = {}
        for part in self.parts.batches:
            own[part.policy], versions = versions[: len(part.records)], versions[len(part.records) :]
        for policy in self.policies:
            traces = [trace for part in trained.values() for trace in part.traces if trace.policy == policy.name]
            if not traces:
                continue
            numbers_of: dict[str, Any] = session_metrics(traces) | step_diagnostics(traces) | assistant_turns(traces)
            if policy.name in trained:
                part = trained[policy.name]
                taught = policy.objective is not None and policy.objective.teacher == "feedback"
                numbers_of |= batch_metrics.sequences(part, teaches_feedback=taught) | batch_metrics.groups(part.groups)
                numbers_of |= batch_metrics.kl_to_start(part)
                numbers_of |= self.alarm.check_rollout(self.global_steps, part, own[policy.name], policy.name)
            numbers |= {f"policy/{policy.name}/{name}": value for name, value in numbers_of.items()}
        return numbers

    def on_step_end(self) -> None:
        self._end_if_due()  # saves while the rollout servers still sleep, as the memory plan assumes
        start = time.perf_counter()
        with self.watchdog.phase("weight sync"):
            super().on_step_end()
            self._check_sync()
        logger.info("Weights of step %d are synced (%.1f s)", self.global_steps, time.perf_counter() - start)
        self._end_if_due()
        if isinstance(self.judges.stop, BudgetSpent):
            logger.warning("%s", self.judges.stop)

    def _raise_outage(self) -> None:
        """End the run if too many sessions failed; call it once the step is recorded and its checkpoint published."""
        if isinstance(self.judges.stop, RunFailed):
            raise self.judges.stop

    def _end_if_due(self) -> None:
        """Make this step the last one if the driver got a signal or the sessions failed; save it if there is time."""
        save_until = stop_signals.save_until()
        if save_until is None and self.judges.stop is None:
            return
        if self.total_training_steps == self.checkpoints.written_step == self.global_steps:
            return  # done before the weight sync
        in_time = save_until is None or time.time() + self.checkpoints.seconds < save_until
        logger.warning("Step %d is the last one%s", self.global_steps, "" if in_time else "; no time to save it")
        if in_time and self.checkpoints.written_step != self.global_steps:
            self._save_checkpoint()
        self.total_training_steps = self.global_steps  # verl's loop ends after its last step: make this one the last

    def on_train_begin(self) -> None:
        stop_signals.report_begun()
        with self.watchdog.phase("start of training"):
            self._check_sync()  # records the servers' answers before the first update
            super().on_train_begin()
        resumed_from = self.global_steps - 1  # verl counts the first step before it calls this
        numbers = self.run_folder.metrics_of(resumed_from) if resumed_from > 0 else {}
        if numbers:  # the run may have been killed after it wrote metrics.jsonl and before W&B or TensorBoard had them
            self.logger.log(data=numbers, step=resumed_from)

    def _check_sync(self) -> None:
        """Check that the update reached every rollout server."""
        if self.alarm.max_unchanged is None:
            return
        times = 1 if self.base_mode == "sync" else sync_alarm.ASKS_OF_BUSY
        probe = self.tokenizer.encode(sync_alarm.PROBE_TEXT)
        policies: list[Policy | None] = [each for each in self.policies if each.objective]
        for policy in policies or [None]:
            answers = sync_alarm.ask(self._servers, probe, times, policy.sampling if policy else {})
            if policy is not None:
                answers = {f"{server} with the adapter of {policy.name}": found for server, found in answers.items()}
            updated = self.parts.updated if policy is None else policy.name in self.parts.moved
            self.alarm.check_change(self.global_steps, answers, updated=updated)

    def _compute_metrics(
        self, batch: KVBatchMeta, metrics: dict[str, Any], timing_raw: dict[str, float], global_steps: int, epoch: int
    ) -> None:
        metrics |= self._step_numbers(batch, timing_raw, epoch)
        self._record(metrics)
        print(summary_line(self.global_steps, self.total_training_steps, metrics), flush=True)
        if not self._looked:
            traces = [trace for part in self.parts.batches for trace in part.traces]
            print(first_look(traces, metrics), flush=True)
            self._looked = True
        self.finite.check(self.global_steps, self.global_steps >= self.total_training_steps, self.checkpoints.root)

    def _step_numbers(self, batch: KVBatchMeta, timing_raw: dict[str, float], epoch: int) -> dict[str, Any]:
        """verl's own metrics of the whole step, once it has ended."""
        step, gpus = self.parts.joined(), self._get_n_gpus_for_throughput()
        assert step.columns is not None
        numbers = batch_metrics.of_verl(batch.tags, step.records, step.advantages, step.columns.mask, timing_raw, gpus)
        numbers |= batch_metrics.staleness(batch.tags, self.global_steps)
        return numbers | {"training/global_step": self.global_steps, "training/epoch": epoch}

    def _record(self, metrics: dict[str, Any]) -> None:
        """Write the step's metrics, then publish its checkpoint: after a kill in between, the step is repeated.

        Args:
            metrics: gets the alarms too.
        """
        name = self.settings.objective.name
        earlier = self.run_folder.metrics()
        for policy in self.policies:
            known = {step: of_policy(policy.name, numbers) for step, numbers in earlier.items()}
            alarms = raise_alarms(
                self.global_steps, f"{name}, policy {policy.name}", of_policy(policy.name, metrics), known
            )
            metrics |= {f"policy/{policy.name}/{alarm}": value for alarm, value in alarms.items()}
        metrics |= raise_alarms(self.global_steps, name, metrics, earlier)
        self.run_folder.log_metrics(self.global_steps, metrics)
        self.checkpoints.publish()

    def _record_trained_step(self) -> None:
        """Record and publish the step of this process that is trained, if there is one."""
        if self._trained is not None:
            batch, metrics = self._trained
            epoch = (self.global_steps - 1) // self.steps_per_epoch
            self._record(metrics | self._step_numbers(batch, self.timing_raw, epoch))
            self._raise_outage()

    # ---- checkpoints ------------------------------------------------------------------------------------------

    def _save_checkpoint(self) -> None:
        """Write a complete checkpoint to a temporary folder; `_record` publishes it.

        A step that is not finite gets none.
        """
        if self.finite.in_a_row:
            return
        finite = all(self.actor_rollout_wg.has_finite_weights())
        require_finite_weights(self.global_steps, finite, self.checkpoints.root)
        self.checkpoints.write(self.global_steps, super()._save_checkpoint)

    def _load_checkpoint(self) -> None:
        """Resume; in an asynchronous mode with the prompts that were being sampled or waited for their training."""
        super()._load_checkpoint()
        drop_trained_rows()
