"""The nodes of a supervised training see one folder of checkpoints, or the start names those that do not."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
import torch.distributed as dist
import torch.multiprocessing as mp

from sft.run.checkpoints import BadCheckpoint, check_shared


def _process(rank: int, folder: Path) -> None:
    dist.init_process_group("gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=2)
    check_shared(folder / "shared")
    with pytest.raises(BadCheckpoint, match=f"{socket.gethostname()} cannot see the folder of the first node"):
        check_shared(folder / f"disk_of_{rank}")
    dist.destroy_process_group()


def test_a_node_with_a_disk_of_its_own_is_named_by_every_rank(tmp_path: Path) -> None:
    mp.start_processes(_process, args=(tmp_path,), nprocs=2, start_method="spawn")
    assert not [*(tmp_path / "shared").iterdir(), *(tmp_path / "disk_of_0").iterdir()]
