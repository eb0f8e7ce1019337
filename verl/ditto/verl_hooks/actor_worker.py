"""The actor's process: verl's, with our end of the weight sync, and in separate_async with copies that are copies.

It also holds the checkpoints that teach (`algorithm.distill.teachers`), each in an engine of its own, and keeps what an
update says of its rows where no pass before it does (`ditto/old_log_probs.py`).

A step of separate_async may train in several parts, and all of them take pi_old from the weights at its beginning, so
verl's trainer puts these back for a forward pass (`save_model_to_cpu`, `restore_model_from_cpu`). In verl 0.9.1 both
are wrong wherever the weights are on the CPU already, which they are on a CPU and with `param_offload`: the copy shares
the live memory. And after a forward pass FSDP2 keeps the root's parameters gathered, so that what is written to them is
lost. Here only what is trained is copied: with LoRA, the adapter.
"""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from tensordict import TensorDict
from torch import Tensor
from verl.experimental.separation.engine_workers import DetachActorWorker
from verl.single_controller.base.decorator import Dispatch, make_nd_compute_dataproto_dispatch_fn, register
from verl.utils.device import get_device_id
from verl.utils.memory_utils import aggressive_empty_cache
from verl.workers.engine_workers import ActorRolloutRefWorker

from ditto.batch.jagged import jagged, row_lengths
from ditto.model.teacher_weights import TrainedShards
from ditto.objectives.losses import PLACES
from ditto.policies import ADAPTER, FIRST_NUMBER, adapters_of
from ditto.verl_hooks.adapter_sync import with_config
from ditto.verl_hooks.dropout import active_dropout

_KEPT = ("log_probs", "entropy")


class UpdateOutputs:
    """A loss that keeps the log-probs and entropies that it gets: what a pass before the update would give.

    The rows of an update are packed into micro-batches in an order of its own, so each carries its number (PLACES). Of
    a row that is trained several times, the first counts: it is the one by the oldest weights.

    Args:
        loss: computes the loss, as verl's `set_loss_fn` wants it.
    """

    def __init__(self, loss: Callable[..., Any]) -> None:
        self._loss = loss
        self._rows: dict[int, dict[str, Tensor]] = {}

    def __call__(self, model_output: Mapping[str, Any], data: TensorDict, dp_group: Any = None) -> Any:
        if PLACES in data:
            columns = {name: model_output[name] for name in _KEPT if model_output.get(name) is not None}
            rows = {name: _rows(column) for name, column in columns.items()}
            for number, place in enumerate(data[PLACES].values().tolist()):
                self._rows.setdefault(place, {name: values[number] for name, values in rows.items()})
        return self._loss(model_output=model_output, data=data, dp_group=dp_group)

    def take(self, places: Tensor) -> TensorDict:
        """Take the outputs of these rows, jagged, with a value for each token of prompt and response; then forget all.

        Args:
            places: jagged, the number of each row.
        """
        rows = [self._rows[place] for place in places.values().tolist()]
        self._rows = {}
        columns = {name: jagged([row[name] for row in rows]) for name in rows[0]}
        return TensorDict(columns, batch_size=len(rows))


def _rows(column: Tensor) -> tuple[Tensor, ...]:
    return column.detach().values().to("cpu", copy=True).split(row_lengths(column).tolist())


def places(rows: int) -> Tensor:
    """The column PLACES of a batch: its rows, numbered."""
    return jagged(list(torch.arange(rows).split(1)))


class _DittoActor(ActorRolloutRefWorker):
    """A rank of the actor that can hold teachers, and remembers its last update."""

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def set_loss_fn(self, loss_fn: Any) -> None:
        """Set the loss of the updates."""
        self._outputs = UpdateOutputs(loss_fn)
        super().set_loss_fn(self._outputs)

    @register(dispatch_mode=make_nd_compute_dataproto_dispatch_fn(mesh_name="actor"))
    def update_outputs(self, data: TensorDict) -> TensorDict:
        """The log-probs and entropies of these rows (PLACES) in the last update, like those of `compute_log_prob`."""
        return self._outputs.take(data[PLACES])

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def active_dropout(self) -> list[str]:
        """The dropouts of the model in training."""
        return active_dropout(self.actor.engine.module)

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def has_finite_weights(self) -> bool:
        """True if no trained weight of this rank is NaN or infinite."""
        return TrainedShards(self.actor.engine.module).are_finite()

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def choose_policy(self, adapter: str, moves_schedule: bool) -> None:
        """Compute with the adapter of a policy, and train it alone, from now on."""
        self.actor.engine.choose_adapter(adapter, moves_schedule)

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def load_teachers(self, checkpoints: list[str]) -> None:
        """Load the checkpoints that score what the policy samples; their places are their numbers."""
        self.actor.engine.load_teachers(checkpoints)
        aggressive_empty_cache(force_sync=True)  # vLLM needs what loading took


class ActorWorker(_DittoActor):
    """A rank of the actor that shares its device with a rollout server. This module registers its end of the sync."""

    @register(dispatch_mode=Dispatch.ONE_TO_ALL, blocking=False)
    async def update_weights(self, global_steps: int | None = None, mode: str = "auto") -> Any:
        """Send the weights; of several policies' adapters verl sends the first, and the others follow."""
        sent = await super().update_weights(global_steps=global_steps, mode=mode)
        for place, name in enumerate(adapters_of(self.config.model.get("lora") or {})[1:], start=1):
            weights, config = self.actor.engine.adapter_weights(name)
            numbered = config | {ADAPTER: FIRST_NUMBER + place}
            await self.rollout.update_weights(
                iter(weights.items()), peft_config=numbered, base_sync_done=True, global_steps=global_steps
            )
        return sent


class SeparateActorWorker(DetachActorWorker, _DittoActor):
    """A rank of the actor in separate_async."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._saved: dict[int, dict[str, Tensor]] = {}

    @register(dispatch_mode=Dispatch.ONE_TO_ALL, blocking=False)
    async def update_weights(self, global_steps: int | None = None, mode: str = "auto") -> dict[str, Any]:
        """Send the weights, or with LoRA the adapter, through the checkpoint engine. `mode` is its name."""
        # base_sync_done: the servers have the base model, so of a LoRA model only the adapter is wanted.
        weights, config = self.actor.engine.get_per_tensor_param(
            layered_summon=self.config.rollout.layered_summon, base_sync_done=True
        )
        if config is not None:
            weights = with_config(config, weights, get_device_id())
        return await self.checkpoint_engine.send_weights(weights, global_steps=global_steps) or {}

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def save_model_to_cpu(self, n: int) -> None:
        """Keep a copy of this rank's trained weights under a number."""
        self._saved[n] = TrainedShards(self.actor.engine.module).copies("cpu")

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def restore_model_from_cpu(self, n: int) -> None:
        """Write a copy back into the model. The copy stays."""
        TrainedShards(self.actor.engine.module).write(self._saved[n])

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def clear_cpu_model(self, n: int) -> None:
        """Forget a copy."""
        self._saved.pop(n)
