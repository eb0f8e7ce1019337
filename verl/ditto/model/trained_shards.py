"""This rank's shards of a model's parameters: to copy, check and write back those that are trained, to gather one."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor
from verl.utils.device import get_device_id


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
