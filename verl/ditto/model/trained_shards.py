"""This rank's shards of the trained parameters of a model: to copy them, and to write copies back."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor


class TrainedShards:
    """The trained parameters of a model. With LoRA these are the adapter alone.

    Args:
        module: the model, sharded by FSDP2 or not sharded.

    Attributes:
        parameters: name -> parameter.
    """

    def __init__(self, module: nn.Module) -> None:
        self.module = module
        self._reshard()
        self.parameters = {name: p for name, p in module.named_parameters() if p.requires_grad}

    def copies(self, device: str | None = None) -> dict[str, Tensor]:
        """A copy of every shard, on a device or (None) on its own; never the live memory."""
        return {name: shard(p).detach().to(device, copy=True) for name, p in self.parameters.items()}

    @torch.no_grad()
    def write(self, values: Mapping[str, Tensor]) -> None:
        """Set every shard to its value."""
        self._reshard()
        for name, parameter in self.parameters.items():
            shard(parameter).copy_(values[name])

    def _reshard(self) -> None:
        """After a forward pass FSDP2 keeps the root's parameters gathered; make it gather them again."""
        for part in self.module.modules():
            if isinstance(part, FSDPModule):
                part.reshard()


def shard(parameter: Tensor) -> Tensor:
    """This rank's part of a parameter, sharing its memory."""
    local: Tensor = parameter.to_local() if isinstance(parameter, DTensor) else parameter.data
    return local
