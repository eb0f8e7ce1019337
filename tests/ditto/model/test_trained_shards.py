"""Copies of the trained weights of a model that FSDP2 shards: one rank, on the CPU.

On a CPU, and with `param_offload`, `tensor.cpu()` is the tensor itself: a "copy" made so changes with the weights.
"""

import math
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from verl.utils.fsdp_utils import fsdp2_sharded_save_to_cpu

from ditto.model.teacher_weights import TrainedShards, shard
from ditto.verl_hooks.actor_worker import SeparateActorWorker


class Model(nn.Module):
    """A layer that is sharded by itself, and a head that stays in the root's group."""

    def __init__(self) -> None:
        super().__init__()
        self.config = SimpleNamespace(tie_word_embeddings=False, get=lambda _key, default=None: default)
        self.layer = nn.Linear(4, 4)
        self.head = nn.Linear(4, 3, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.layer(x))


@pytest.fixture
def mesh(tmp_path: Path) -> Iterator[Any]:
    torch.distributed.init_process_group("gloo", rank=0, world_size=1, init_method=f"file://{tmp_path}/meeting")
    yield init_device_mesh("cpu", (1,))
    torch.distributed.destroy_process_group()


def sharded(model: nn.Module, mesh: Any) -> Any:
    for module in list(model.modules()):
        if isinstance(module, nn.Linear) and module is not getattr(model, "head", None):
            fully_shard(module, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def worker_of(module: nn.Module) -> SeparateActorWorker:
    worker = object.__new__(SeparateActorWorker)
    worker._saved = {}
    worker.actor = SimpleNamespace(engine=SimpleNamespace(module=module))
    return worker


def update(module: nn.Module, x: torch.Tensor, optimizer: torch.optim.Optimizer) -> None:
    optimizer.zero_grad()
    module(x).square().mean().backward()
    optimizer.step()


def test_a_later_part_sees_the_weights_of_the_beginning_and_trains_the_live_ones(mesh: Any) -> None:
    """The order of verl's `_compute_old_log_prob` over two parts, with an update after each."""
    torch.manual_seed(0)
    x, plain = torch.randn(5, 4), Model()
    module = Model()
    module.load_state_dict(plain.state_dict())
    module = sharded(module, mesh)
    optimizers = [torch.optim.SGD(each.parameters(), lr=0.1) for each in (plain, module)]
    worker = worker_of(module)

    def outputs(of: nn.Module) -> torch.Tensor:
        with torch.no_grad():  # leaves the root's parameters gathered
            return of(x).clone()

    start = outputs(plain)
    worker.save_model_to_cpu(0)
    assert torch.equal(outputs(module), start)
    update(plain, x, optimizers[0]), update(module, x, optimizers[1])
    moved = outputs(plain)
    assert not torch.allclose(moved, start)
    worker.save_model_to_cpu(1)
    worker.restore_model_from_cpu(0)
    assert torch.equal(outputs(module), start), "pi_old of the second part"
    worker.restore_model_from_cpu(1)
    worker.clear_cpu_model(1)
    assert torch.allclose(outputs(module), moved), "the live weights are back"
    update(plain, x, optimizers[0]), update(module, x, optimizers[1])
    assert torch.allclose(outputs(module), outputs(plain), atol=1e-6), "and the update goes on from them"


@pytest.mark.parametrize("value", [math.nan, math.inf, -1e30])
def test_a_weight_that_is_not_finite_is_found_and_a_frozen_one_is_none_of_ours(mesh: Any, value: float) -> None:
    module = sharded(Model(), mesh)
    empty = nn.Parameter(torch.empty(0))  # the part of a rank that has no rows of a small weight
    module.register_parameter("nothing", empty)
    assert TrainedShards(module).are_finite()
    with torch.no_grad():
        shard(module.layer.weight)[2, 1] = value
    assert not TrainedShards(module).are_finite()
    module.layer.weight.requires_grad_(False)
    assert TrainedShards(module).are_finite()


def test_verls_own_copy_still_shares_the_live_memory(mesh: Any) -> None:
    """If this fails, verl copies, and so can SeparateActorWorker let it."""
    module = sharded(Model(), mesh)
    saved, _spec = fsdp2_sharded_save_to_cpu(module)
    shares = [saved[name][0].data_ptr() == shard(p).data_ptr() for name, p in module.named_parameters()]
    assert all(shares)
