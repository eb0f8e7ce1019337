"""Convert a checkpoint for another number of processes.

verl's engine writes a file for each process, with its slice of every parameter and of every moment of the optimizer
(FSDP2 splits dimension 0 into equal parts). Here every process joins the old slices, one tensor after the other, cuts
out its own slice, and writes the file that the engine then loads as if the new number of processes had written it. The
old files are memory-mapped: a process needs memory for its own slices and for one whole tensor.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy._core.multiarray import _reconstruct
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor

from soul.errors import SoulError

# Types of the random states that a file of extra_state holds.
_OF_RANDOM_STATES = [np.dtype, np.ndarray, type(np.dtype("uint32")), _reconstruct]


class BadShards(SoulError):
    """A checkpoint's slices cannot be joined."""


def reshard(source: Path, written: int, target: Path, rank: int, ranks: int, module: Any, optimizer: Any) -> None:
    """Write this process's files of a checkpoint.

    Args:
        source: the folder with the files of `written` processes.
        target: gets `{model,optim,extra_state}_world_size_{ranks}_rank_{rank}.pt`. The random states are not copied:
            each belongs to one of the old processes.
        module: sharded by FSDP2 for `ranks` processes; its layout determines this process's slices.
        optimizer: the order of its parameters assigns the moments to them.

    Raises:
        BadShards: the checkpoint is not sliced as FSDP2 does it.
    """

    def new(kind: str, state: dict[str, Any]) -> None:
        torch.save(state, target / f"{kind}_world_size_{ranks}_rank_{rank}.pt")

    mine, slices = module.state_dict(), load_slices(source, "model", written)
    new("model", {name: _fitted([each[name] for each in slices], mine[name], source) for name in slices[0]})

    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    slices = load_slices(source, "optim", written)
    state = {
        number: {
            key: _fitted([each["state"][number][key] for each in slices], parameters[number], source) for key in moments
        }
        for number, moments in slices[0]["state"].items()
    }
    new("optim", {**slices[0], "state": state})

    (extra, *_) = load_slices(source, "extra_state", written)
    new("extra_state", {"lr_scheduler": extra["lr_scheduler"]})


def load_slices(source: Path, kind: str, written: int) -> list[dict[str, Any]]:
    """The files of a kind (model, optim, extra_state) of `written` processes, memory-mapped."""
    paths = [source / f"{kind}_world_size_{written}_rank_{number}.pt" for number in range(written)]
    with torch.serialization.safe_globals(_OF_RANDOM_STATES):
        return [torch.load(path, map_location="cpu", mmap=True, weights_only=True) for path in paths]


def joined(slices: list[Any], source: Path) -> Any:
    """A whole tensor from its slices. A value that was not sliced (a step count, a buffer) stays as it is.

    Raises:
        BadShards: it is not sliced as FSDP2 does it.
    """
    first = slices[0]
    if not isinstance(first, DTensor):
        return first
    *outer, inner = first.placements
    if inner != Shard(0) or any(each != Replicate() for each in outer):
        raise BadShards(
            f"{source}: slices of the kind {first.placements} cannot be joined. Resume with the number of "
            "processes that wrote them."
        )
    group = first.device_mesh.mesh.flatten(0, -2)[0] if outer else first.device_mesh.mesh  # one copy of the replicas
    return torch.cat([slices[number].to_local() for number in group.tolist()])


def _fitted(slices: list[Any], like: Any, source: Path) -> Any:
    """The slice with the layout of `like`. A value that was not sliced stays as it is."""
    whole = joined(slices, source)
    if not isinstance(slices[0], DTensor):
        return whole
    return distribute_tensor(whole, like.device_mesh, like.placements, src_data_rank=None)
