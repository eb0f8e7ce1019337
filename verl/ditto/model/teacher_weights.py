"""This rank's shards of the trained parameters; and SDPO's teacher, a copy that takes their place for a forward pass.

The teacher is the policy itself under the feedback. Its weights are the live ones, a moving average of them, or those
the run started with; the last two are copies of this rank's shards of the trained parameters. With LoRA these are the
adapter alone, so no second model is loaded; the frozen weights serve both.

Where parameters are offloaded between updates, so are the copies: the rollout gets their memory too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor
from verl.utils.device import get_device_id

from ditto.run.manifest import present_kinds, rank_file
from ditto.run.reshard import BadShards, fitted, load_slices, sliced_alike

_KIND = "teacher"  # of the files of a rank


class TrainedShards:
    """The trained parameters of a model. With LoRA these are the adapter alone.

    Args:
        module: the model, sharded by FSDP2 or not sharded.

    Attributes:
        parameters: name -> parameter.
    """

    def __init__(self, module: nn.Module) -> None:
        self.module = module
        reshard(module)
        self.parameters = {name: p for name, p in module.named_parameters() if p.requires_grad}

    def copies(self, device: str | None = None) -> dict[str, Tensor]:
        """A copy of every shard, on a device or (None) on its own; never the live memory."""
        return {name: shard(p).detach().to(device, copy=True) for name, p in self.parameters.items()}

    def are_finite(self) -> bool:
        """True if the square of every weight of this rank is finite.

        Weights beyond that are as lost as NaN: no forward pass is finite. The check takes no memory of their size.
        """
        shards = (shard(p).detach() for p in self.parameters.values())
        extremes = (torch.stack(values.aminmax()) for values in shards if values.numel())
        return all(bool(pair.float().square().isfinite().all()) for pair in extremes)

    @torch.no_grad()
    def write(self, values: Mapping[str, Tensor]) -> None:
        """Set every shard to its value."""
        reshard(self.module)
        for name, parameter in self.parameters.items():
            shard(parameter).copy_(values[name])


def reshard(module: nn.Module) -> None:
    """After a forward pass FSDP2 keeps the root's parameters gathered; make it gather them again."""
    for part in module.modules():
        if isinstance(part, FSDPModule):
            part.reshard()


def shard(parameter: Tensor) -> Tensor:
    """This rank's part of a parameter, sharing its memory."""
    local: Tensor = parameter.to_local() if isinstance(parameter, DTensor) else parameter.data
    return local


def whole(parameter: nn.Parameter, local: Tensor) -> Tensor:
    """The whole of a parameter, gathered from all ranks, on this rank's device.

    Args:
        local: this rank's part, or other values in its place.
    """
    here = local.to(get_device_id())  # FSDP2's offload policy keeps shards on the host
    if not isinstance(parameter, DTensor):
        return here
    gathered: Tensor = DTensor.from_local(
        here, parameter.device_mesh, parameter.placements, shape=parameter.shape, stride=parameter.stride()
    ).full_tensor()
    return gathered


class TeacherWeights:
    """Copies of a model's trained parameters, from when this is created.

    Args:
        module: the model, sharded by FSDP2 or not sharded.
        kind: "ema" or "base".
    """

    def __init__(self, module: nn.Module, kind: str) -> None:
        self.kind = kind
        self.live = TrainedShards(module)
        self.copies = self.live.copies()

    @contextmanager
    def active(self) -> Iterator[None]:
        """Within this context the model computes with the copies. Use it without gradients."""
        self._follow()
        live = self.live.copies()
        self.live.write(self.copies)
        try:
            yield
        finally:
            self.live.write(live)

    @torch.no_grad()
    def move(self, rate: float) -> None:
        """Move the copies towards the live weights: copy <- (1 - rate) copy + rate live."""
        self._follow()
        for name, parameter in self.live.parameters.items():
            self.copies[name].lerp_(shard(parameter), rate)

    def offload(self) -> None:
        """Keep the copies on the host until they are used again."""
        self.copies = {name: copy.cpu() for name, copy in self.copies.items()}

    def _follow(self) -> None:
        """Bring the copies to where the parameters are: offloaded ones may have come back since."""
        self.copies = {name: self.copies[name].to(shard(p).device) for name, p in self.live.parameters.items()}

    def of(self, parameter: nn.Parameter) -> Tensor | None:
        """The copy of a whole parameter, gathered from all ranks; None if it is not trained."""
        name = next((name for name, p in self.live.parameters.items() if p is parameter), None)
        return None if name is None else whole(parameter, self.copies[name])

    def save(self, actor: Path) -> None:
        """Write the copies of this rank's shards, and their kind, beside verl's own files of a rank."""
        copies = {name: copy.cpu() for name, copy in self.copies.items()}
        torch.save({"kind": self.kind, "copies": copies}, rank_file(actor, _KIND, *_ranks_and_rank()))

    @classmethod
    def saved(cls, module: nn.Module, actor: Path) -> TeacherWeights | None:
        """The teacher of a checkpoint, which any number of ranks may have written; None if it has none.

        Raises:
            BadShards: the copies are of other parameters, or cannot be joined.
        """
        written = next((ranks for kind, ranks in present_kinds(actor) if kind == _KIND), None)
        if written is None:
            return None
        ranks, rank = _ranks_and_rank()
        slices = load_slices(actor, _KIND, written)
        teacher = cls(module, slices[0]["kind"])
        values, parameters = slices[rank % written]["copies"], teacher.live.parameters
        alike = written == ranks and sliced_alike(actor, written, module)
        if not alike and values.keys() == parameters.keys():
            layouts = load_slices(actor, "model", written)[0]  # copies are sliced as what they are copies of
            values = fitted([each["copies"] for each in slices], parameters, actor, layouts)
        local = {name: shard(value) for name, value in values.items()}
        shapes = [{name: tuple(copy.shape) for name, copy in copies.items()} for copies in (local, teacher.copies)]
        if shapes[0] != shapes[1]:
            raise BadShards(f"{actor}: the teacher's weights are of other parameters than those being trained")
        for name, value in local.items():
            teacher.copies[name].copy_(value)
        teacher.offload()
        return teacher


def _ranks_and_rank() -> tuple[int, int]:
    return torch.distributed.get_world_size(), torch.distributed.get_rank()
