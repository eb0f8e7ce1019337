"""Read a checkpoint on another number of ranks than wrote it, or on ranks that are arranged in another way.

verl's engine writes a file for each rank, with its slice of every parameter and of every moment of the optimizer
(FSDP2 splits dimension 0 into equal parts). Here every rank joins the old slices, one tensor after the other, and cuts
out its own slice. The old files are memory-mapped: a rank needs memory for its own slices and for one whole tensor.
The ranks' random states are not carried over: each belongs to one of the old ranks.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy._core.multiarray import _reconstruct
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor

from ditto.run.manifest import rank_files
from soul.errors import SoulError

# Types of the random states that a file of extra_state holds.
_OF_RANDOM_STATES = [np.dtype, np.ndarray, type(np.dtype("uint32")), _reconstruct]


class BadShards(SoulError):
    """A checkpoint's slices cannot be joined."""


def sliced_alike(actor: Path, written: int, module: torch.nn.Module) -> bool:
    """True if the ranks that wrote a checkpoint were as many and arranged alike (`fsdp_size`) as the module's now."""
    with torch.serialization.safe_globals(_OF_RANDOM_STATES):
        first = torch.load(rank_files(actor, "model", written)[0], map_location="cpu", mmap=True, weights_only=True)
    return _arrangement(first) == _arrangement(module.state_dict())


def _arrangement(state: Mapping[str, Any]) -> list[list[int]] | list[int] | None:
    """The ranks' numbers, replicas in rows; None if nothing is sliced."""
    sliced = next((value for value in state.values() if isinstance(value, DTensor)), None)
    return None if sliced is None else sliced.device_mesh.mesh.tolist()


def model_state(actor: Path, written: int, module: torch.nn.Module) -> dict[str, Any]:
    """This rank's part of the weights; of LoRA's factors alone if the checkpoint holds no others.

    Args:
        actor: the folder with the files of `written` ranks.
        module: sharded by FSDP2 for the ranks of now; its layout determines this rank's slices.
    """
    slices, like = load_slices(actor, "model", written), module.state_dict()
    if unknown := sorted(slices[0].keys() - like.keys()):
        raise BadShards(
            f"{actor}: the checkpoint has weights that the model lacks, such as {unknown[0]}. Resume with the same "
            "model and LoRA settings."
        )
    return fitted(slices, like, actor)


def optimizer_state(actor: Path, written: int, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """This rank's part of the optimizer's state. The order of its parameters assigns the moments to them."""
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    slices = load_slices(actor, "optim", written)
    state = {
        number: fitted([each["state"][number] for each in slices], dict.fromkeys(moments, parameters[number]), actor)
        for number, moments in slices[0]["state"].items()
    }
    return {**slices[0], "state": state}


def scheduler_state(actor: Path, written: int) -> dict[str, Any] | None:
    """The state of the learning rate, which is the same on every rank; None for a run without a schedule."""
    return load_slices(actor, "extra_state", written)[0]["lr_scheduler"]


def joined_model(actor: Path, written: int) -> dict[str, torch.Tensor]:
    """The tensors of the model's files, whole, on the CPU. Raises BadShards."""
    slices = load_slices(actor, "model", written)
    return {name: joined([each[name] for each in slices], actor) for name in slices[0]}


def load_slices(actor: Path, kind: str, written: int) -> list[dict[str, Any]]:
    """The files of a kind (model, optim, extra_state, teacher) of `written` ranks, memory-mapped."""
    with torch.serialization.safe_globals(_OF_RANDOM_STATES):
        return [
            torch.load(path, map_location="cpu", mmap=True, weights_only=True)
            for path in rank_files(actor, kind, written)
        ]


def joined(slices: list[Any], source: Path, layout: Any = None) -> Any:
    """A whole tensor from its slices. A value that was not sliced (a step count, a buffer) stays as it is.

    Args:
        layout: a tensor that was sliced in the same way, for slices that do not know how; None: they do.
    """
    layout = slices[0] if layout is None else layout
    if not isinstance(layout, DTensor):
        return slices[0]
    *outer, inner = layout.placements
    if inner != Shard(0) or any(each != Replicate() for each in outer):
        raise BadShards(
            f"{source}: slices of the kind {layout.placements} cannot be joined. Resume with the number of "
            "processes that wrote them."
        )
    mesh = layout.device_mesh.mesh
    group = mesh.flatten(0, -2)[0] if outer else mesh  # one copy of the replicas
    parts = (slices[number] for number in group.tolist())
    return torch.cat([part.to_local() if isinstance(part, DTensor) else part for part in parts])


def fitted(
    slices: list[dict[str, Any]], like: Mapping[str, Any], source: Path, layouts: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """This rank's slices of some tensors, in the layouts of others. A value that was not sliced stays as it is.

    Args:
        slices: name -> tensor, of every old rank.
        like: name -> tensor with the new layout.
        layouts: name -> tensor with the old layout; None: the slices have it.
    """
    layouts, mine = slices[0] if layouts is None else layouts, dict[str, Any]()
    for name, layout in ((name, layouts[name]) for name in slices[0]):
        mine[name] = joined([each[name] for each in slices], source, layout)
        if isinstance(layout, DTensor):
            mesh, placements = like[name].device_mesh, like[name].placements
            mine[name] = distribute_tensor(mine[name], mesh, placements, src_data_rank=None)
    return mine
