"""A checkpoint engine for machines without an accelerator: actor rank 0 broadcasts the weights over gloo.

In separate_async the rollout servers are in other processes than the actor, perhaps on other machines, so verl sends
them the weights through a checkpoint engine; its own ones need an accelerator or RDMA. Each sync builds a process group
of actor rank 0 and all rollout workers, and broadcasts buckets: two lengths, the list of tensors as JSON, their bytes.
Two lengths of 0 end the stream. `rollout.checkpoint_engine.backend=gloo` selects this engine.
"""

import json
from collections.abc import AsyncGenerator, Generator
from datetime import timedelta
from typing import Any

import ray
import torch
import torch.distributed as dist
from torch import Tensor
from verl.checkpoint_engine.base import CheckpointEngine, CheckpointEngineRegistry

TIMEOUT = timedelta(minutes=10)  # of one broadcast; a lost worker is noticed at once, because its connection breaks
NOT_IN_GROUP = -1  # rank of the actor's other processes


@CheckpointEngineRegistry.register("gloo")
class GlooCheckpointEngine(CheckpointEngine):
    """One end of the transfer.

    Args:
        bucket_size: bytes that are sent at once; a larger tensor is sent alone.
        is_master: whether this is actor rank 0.
    """

    def __init__(self, bucket_size: int, is_master: bool = False) -> None:
        self.bucket_size, self.is_master = bucket_size, is_master
        self.rank = NOT_IN_GROUP
        self._store: dist.TCPStore | None = None
        self._group: dist.ProcessGroupGloo | None = None

    def prepare(self) -> dict[str, Any]:
        """Open the port at which the group meets. Returns its address; {} for all but actor rank 0."""
        if not self.is_master:
            return {}
        host = ray.util.get_node_ip_address().strip("[]")
        self._store = dist.TCPStore(host, 0, is_master=True, wait_for_workers=False, timeout=TIMEOUT)
        return {"host_name": host, "port": self._store.port}

    @classmethod
    def build_topology(
        cls, actor_wg_world_size: int, rollout_world_size: int, metadata: list[dict[str, Any]]
    ) -> tuple[dict[str, list[Any]], dict[str, list[Any]]]:
        """Arguments of `init_process_group`, one for each process of the actor and of the rollout."""
        size, rendezvous = 1 + rollout_world_size, metadata[0]

        def arguments(ranks: list[int]) -> dict[str, list[Any]]:
            return {"rank": ranks, "world_size": [size] * len(ranks), "rendezvous": [rendezvous] * len(ranks)}

        actor = [0] + [NOT_IN_GROUP] * (actor_wg_world_size - 1)
        return arguments(actor), arguments(list(range(1, size)))

    def init_process_group(self, **topology: Any) -> None:
        """Join the group of this sync, with one process's `rank`, `world_size` and `rendezvous`."""
        self.rank = topology["rank"]
        if self.rank == NOT_IN_GROUP:
            return
        if self._store is None:
            self._store = dist.TCPStore(**topology["rendezvous"], is_master=False, timeout=TIMEOUT)
        self._group = dist.ProcessGroupGloo(self._store, self.rank, topology["world_size"], TIMEOUT)

    def finalize(self) -> None:
        """Leave the group."""
        self._group = self._store = None

    async def send_weights(
        self, weights: Generator[tuple[str, Tensor], None, None], global_steps: int | None = None
    ) -> None:
        """Send all weights. Every process of the actor calls this: producing a weight is collective."""
        names: list[tuple[str, str, list[int]]] = []
        parts: list[Tensor] = []
        size = 0
        for name, weight in weights:
            if self.rank == NOT_IN_GROUP:
                continue
            if parts and size + weight.nbytes > self.bucket_size:
                self._send(names, parts)
                names, parts, size = [], [], 0
            names.append((name, str(weight.dtype).removeprefix("torch."), list(weight.shape)))
            parts.append(weight.detach().cpu().reshape(-1).view(torch.uint8))
            size += weight.nbytes
        if self.rank != NOT_IN_GROUP:
            self._send(names, parts)
            self._broadcast(torch.zeros(2, dtype=torch.int64))

    async def receive_weights(self, global_steps: int | None = None) -> AsyncGenerator[tuple[str, Tensor], None]:
        """Receive all weights, each with its name."""
        while (lengths := self._broadcast(torch.empty(2, dtype=torch.int64)))[0] > 0:
            header, content = (self._broadcast(torch.empty(int(n), dtype=torch.uint8)) for n in lengths)
            start = 0
            for name, dtype, shape in json.loads(bytes(header.numpy())):
                empty = torch.empty(shape, dtype=getattr(torch, dtype))
                end = start + empty.nbytes
                empty.view(-1).view(torch.uint8).copy_(content[start:end])
                yield name, empty
                start = end

    def _send(self, names: list[tuple[str, str, list[int]]], parts: list[Tensor]) -> None:
        header = torch.frombuffer(bytearray(json.dumps(names).encode()), dtype=torch.uint8)
        content = torch.cat(parts)
        self._broadcast(torch.tensor([len(header), len(content)]))
        self._broadcast(header)
        self._broadcast(content)

    def _broadcast(self, tensor: Tensor) -> Tensor:
        """Send rank 0's tensor to all; the others' is overwritten."""
        assert self._group is not None
        self._group.broadcast(tensor, 0).wait()
        return tensor
