"""Validation during training: the trainer's hooks around verl's own, and its metrics from verdicts.

A validation can take long and can be cut off by a signal, a kill or an outage of the judges. So the step is recorded
and published before it, and a resumed run validates first if the validation of its last step is missing.
"""

import logging
import time
from abc import ABC, abstractmethod
from typing import Any

from verl.trainer.ppo.v1 import PPOTrainer

from ditto.judging.watch import BudgetSpent, JudgeWatch
from ditto.run import stop_signals
from ditto.run.checkpoint_writer import CheckpointWriter
from ditto.run.run_folder import RunFolder
from ditto.run.step_metrics import validation_metrics
from ditto.run.watchdog import Watchdog
from soul.record import SessionRecord

logger = logging.getLogger(__name__)


class Validation(PPOTrainer, ABC):
    """The part of the trainer that validates."""

    run_folder: RunFolder
    watchdog: Watchdog
    judges: JudgeWatch
    checkpoints: CheckpointWriter

    @abstractmethod
    def _record_trained_step(self) -> None:
        """Record and publish the step that this validation follows, if there is one."""

    @abstractmethod
    def _end_if_due(self) -> None:
        """Make this step the last one if the driver got a signal or the judges failed."""

    def _init_dataloader(self) -> None:
        super()._init_dataloader()
        self.val_dataset.split = "val"

    def _settle_validation(self) -> None:
        """Let a resumed run validate before it trains only if the validation of its last step was interrupted."""
        step, trainer = self.global_steps, self.config.trainer
        numbers = self.run_folder.metrics_of(step)
        if step == 0 or not numbers or trainer.val_only:  # no numbers: the checkpoint is another run's
            return
        due = trainer.test_freq > 0 and (step % trainer.test_freq == 0 or step >= self.total_training_steps)
        trainer.val_before_train = due and not any(key.startswith("val/") for key in numbers)
        logger.info("Resuming after step %d; validating first: %s", step, trainer.val_before_train)

    def on_validate_begin(self) -> None:
        """Record and publish the step first, because a validation can take long."""
        self._record_trained_step()
        super().on_validate_begin()

    def _validate(self) -> dict[str, float]:
        """Validate; returns nothing if the run ends without a validation, which a resumed run then repeats."""
        if stop_signals.save_until() is not None or isinstance(self.judges.stop, BudgetSpent):
            return {}
        start = time.perf_counter()
        with self.watchdog.phase("validation"):
            numbers: dict[str, float] = super()._validate()
        self._end_if_due()
        if self.judges.stop is not None:  # too few of its sessions were scored to judge the model
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
        """Metrics of each set from the sessions' verdicts: failed sessions are counted, never scored 0."""
        lines = [line for each in reward_extra_infos_dict["trace"] for line in each.split("\n")]  # one for each side
        traces = [SessionRecord.from_line(line, "a validation's trace") for line in lines]
        self.run_folder.write_traces("val", self.global_steps, traces)
        self.judges.after_validation(traces)
        return validation_metrics(traces)
