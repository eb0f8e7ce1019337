"""A checkpoint's slices, made for other numbers of processes, by real processes with FSDP2 and AdamW."""

from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

from ditto.model import teacher_weights
from ditto.model.teacher_weights import TeacherWeights
from ditto.run.reshard import joined_model, model_state, optimizer_state, scheduler_state, sliced_alike

MOST = 3  # processes; 7 rows and 2 rows can be split evenly by none of 2 and 3 or leave one with nothing


def _model(mesh: DeviceMesh, seed: int) -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(5, 7), nn.Linear(7, 2))
    fully_shard(model, mesh=mesh)
    return model, torch.optim.AdamW(model.parameters(), lr=0.1)


def _train(model: nn.Module, optimizer: torch.optim.Optimizer, steps: int) -> None:
    torch.manual_seed(1)  # every process has the same batch, so their number does not matter
    for _ in range(steps):
        model(torch.randn(4, 5)).square().sum().backward()
        optimizer.step()
        optimizer.zero_grad()


def _whole(model: nn.Module) -> dict[str, torch.Tensor]:
    return {name: value.full_tensor() for name, value in model.state_dict().items()}


def _process(rank: int, folder: Path) -> None:
    dist.init_process_group("gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=MOST)
    meshes = {ranks: DeviceMesh("cpu", torch.arange(ranks)) for ranks in range(1, MOST + 1)}  # made by all together
    for written in range(1, MOST + 1):
        source = folder / f"by_{written}"
        source.mkdir(exist_ok=True)
        if rank < written:
            model, optimizer = _model(meshes[written], seed=0)
            _train(model, optimizer, 2)
            of_this = f"world_size_{written}_rank_{rank}.pt"
            torch.save(model.state_dict(), source / f"model_{of_this}")
            torch.save(optimizer.state_dict(), source / f"optim_{of_this}")
            extra = {"lr_scheduler": {"last_epoch": 2}, "rng": {"numpy": np.random.get_state()}}
            torch.save(extra, source / f"extra_state_{of_this}")
            _train(model, optimizer, 2)
            went_on = _whole(model)
        dist.barrier()
        for ranks in range(1, MOST + 1):
            if rank < ranks:
                model, optimizer = _model(meshes[ranks], seed=9)
                state = model_state(source, written, model)
                assert all(isinstance(value, DTensor) for value in state.values())
                model.load_state_dict(state)
                optimizer.load_state_dict(optimizer_state(source, written, optimizer))
                assert scheduler_state(source, written) == {"last_epoch": 2}
                _train(model, optimizer, 2)
                resumed = _whole(model)
                if rank < written:
                    assert all(torch.allclose(resumed[name], went_on[name], rtol=1e-6) for name in went_on)
            dist.barrier()
    _arranged_in_another_way(rank, folder)
    dist.destroy_process_group()


def _arranged_in_another_way(rank: int, folder: Path) -> None:
    """As many processes as wrote the checkpoint, but as replicas (`fsdp_size=1`)."""
    replicas = DeviceMesh("cpu", torch.arange(2).reshape(2, 1), mesh_dim_names=("ddp", "fsdp"))
    same = DeviceMesh("cpu", torch.arange(2))
    if rank < 2:
        source = folder / "by_2"
        assert sliced_alike(source, 2, _model(same, seed=9)[0])
        assert not sliced_alike(folder / "by_1", 1, _model(same, seed=9)[0])
        model, optimizer = _model(replicas, seed=9)
        assert not sliced_alike(source, 2, model)
        model.load_state_dict(model_state(source, 2, model))
        optimizer.load_state_dict(optimizer_state(source, 2, optimizer))
        joined = joined_model(source, 2)
        assert all(torch.equal(value, joined[name]) for name, value in _whole(model).items())
        teacher_weights._ranks_and_rank = lambda: (2, rank)  # this test's third process does not train
        sliced, _ = _model(same, seed=9)
        sliced.load_state_dict(model_state(source, 2, sliced))
        TeacherWeights(sliced, "base").save(source)
    dist.barrier()
    if rank < 2:
        teacher = TeacherWeights.saved(_model(replicas, seed=9)[0], source)
        assert teacher is not None
        assert all(torch.equal(copy, joined[name]) for name, copy in teacher.copies.items())  # a replica is whole
    dist.barrier()


def test_a_training_goes_on_alike_with_any_number_of_processes(tmp_path: Path) -> None:
    mp.start_processes(_process, args=(tmp_path,), nprocs=MOST, start_method="spawn")
    assert len(list(tmp_path.glob("by_*/optim_*.pt"))) == 1 + 2 + 3
    # A process that is none of the training's joins them too: the driver, which exports an adapter.
    first, *others = (joined_model(tmp_path / f"by_{written}", written) for written in range(1, MOST + 1))
    for other in others:
        assert all(torch.allclose(other[name], value, rtol=1e-6) for name, value in first.items())
