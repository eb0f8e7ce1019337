"""verl's checkpoint manager of an FSDP2 engine, for checkpoints of any number of ranks.

Of the optimizer it restores the state, and not the settings: learning rate, weight decay and betas are those of the
run's config, and the schedule goes on from the checkpoint's step.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from verl.utils.checkpoint.fsdp_checkpoint_manager import FSDPCheckpointManager

from ditto.run import manifest, reshard


class CheckpointManager(FSDPCheckpointManager):  # type: ignore[misc,unused-ignore]
    """Also loads checkpoints of another number or arrangement of ranks; random states are not restored then."""

    def load_checkpoint(self, local_path: str, *args: Any, **kwargs: Any) -> None:
        if self.optimizer is None or self.lr_scheduler is None:  # of a model that is not trained
            self._load(local_path, *args, **kwargs)
            return
        settings = [
            {name: value for name, value in group.items() if name != "params"} for group in self.optimizer.param_groups
        ]
        rates = list(self.lr_scheduler.base_lrs)
        self._load(local_path, *args, **kwargs)
        schedule = self.lr_scheduler
        schedule.base_lrs = rates
        groups = zip(self.optimizer.param_groups, settings, rates, schedule.lr_lambdas, strict=True)
        for group, own, rate, factor in groups:
            group.update(own, lr=rate * factor(schedule.last_epoch))

    def _load(self, local_path: str, *args: Any, **kwargs: Any) -> None:
        actor = Path(local_path)
        written, ranks = manifest.writers(actor), int(self.world_size)
        # Without any file verl names the one that it misses.
        if written is None or (written == ranks and reshard.sliced_alike(actor, ranks, self.model)):
            super().load_checkpoint(local_path, *args, **kwargs)
            return
        if self.should_load_model:
            state = reshard.model_state(actor, written, self.model)
            self.model.load_state_dict(state, strict=not self.is_lora_only_state_dict(state))
        if self.should_load_optimizer:
            self.optimizer.load_state_dict(reshard.optimizer_state(actor, written, self.optimizer))
        schedule = reshard.scheduler_state(actor, written) if self.should_load_extra else None
        if schedule is not None and self.lr_scheduler is not None:
            self.lr_scheduler.load_state_dict(schedule)
