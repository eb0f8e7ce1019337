"""A loaded optimizer has the checkpoint's moments and the run's own settings."""

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from omegaconf import OmegaConf
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.optim.lr_scheduler import LambdaLR

from ditto.model.engine import CheckpointManager

PARTS = ["model", "optimizer", "extra"]


def _manager(lr: float, weight_decay: float, betas: tuple[float, float], steps: int) -> tuple[Any, Any, LambdaLR]:
    torch.manual_seed(0)
    model: Any = nn.Linear(3, 2)
    fully_shard(model, mesh=DeviceMesh("cpu", [0]))
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr, weight_decay=weight_decay, betas=betas)
    schedule = LambdaLR(optimizer, lambda step: 1 - step / steps)
    contents = OmegaConf.create({"load_contents": PARTS, "save_contents": PARTS, "async_save": False})
    manager = CheckpointManager(model=model, optimizer=optimizer, lr_scheduler=schedule, checkpoint_config=contents)
    return manager, optimizer, schedule


def _process(_rank: int, folder: Path) -> None:
    dist.init_process_group("gloo", init_method=f"file://{folder}/rendezvous", rank=0, world_size=1)
    manager, optimizer, schedule = _manager(0.1, 0.01, (0.9, 0.999), steps=10)
    manager.model(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    schedule.step()
    actor = folder / "actor"
    actor.mkdir()
    extra = {"lr_scheduler": schedule.state_dict(), "rng": manager.get_rng_state()}
    states = {"model": manager.model.state_dict(), "optim": optimizer.state_dict(), "extra_state": extra}
    for kind, state in states.items():
        torch.save(state, actor / f"{kind}_world_size_1_rank_0.pt")

    manager, optimizer, schedule = _manager(0.02, 0.5, (0.8, 0.9), steps=20)
    manager.load_checkpoint(str(actor))
    (group,) = optimizer.param_groups
    assert (group["weight_decay"], group["betas"], group["initial_lr"]) == (0.5, (0.8, 0.9), 0.02)
    assert group["lr"] == pytest.approx(0.02 * (1 - 1 / 20))
    assert all(state["step"] == 1 and state["exp_avg"].full_tensor().any() for state in optimizer.state.values())
    optimizer.step()
    schedule.step()
    assert schedule.last_epoch == 2 and group["lr"] == pytest.approx(0.02 * (1 - 2 / 20))
    dist.destroy_process_group()


def test_the_settings_of_the_config_hold_after_loading(tmp_path: Path) -> None:
    mp.start_processes(_process, args=(tmp_path,), nprocs=1, start_method="spawn")
