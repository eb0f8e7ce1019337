"""verl's checkpoint manager of an FSDP2 engine, for checkpoints of any number of ranks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from verl.utils.checkpoint.fsdp_checkpoint_manager import FSDPCheckpointManager

from ditto.run import rank_files, reshard


class CheckpointManager(FSDPCheckpointManager):  # type: ignore[misc,unused-ignore]
    """Also loads checkpoints that another number of ranks wrote; random states are not restored then."""

    def load_checkpoint(self, local_path: str, *args: Any, **kwargs: Any) -> None:
        actor, ranks = Path(local_path), int(self.world_size)
        written = rank_files.writers(actor) or ranks  # none: verl names the file that it misses
        if written == ranks:
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
