"""A checkpoint that is written beside the training, by two real processes with FSDP2 and verl's manager."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from recipe.demo import tiny_model
from soul.errors import OutOfSpace

RANKS = 2


def _manager(folder: Path) -> Any:
    """verl's manager of a sharded model after one step."""
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from verl.trainer.config import CheckpointConfig
    from verl.utils.checkpoint.fsdp_checkpoint_manager import FSDPCheckpointManager

    model = AutoModelForCausalLM.from_pretrained(folder / "model", dtype=torch.float32)
    mesh = init_device_mesh("cpu", (RANKS,))
    for layer in model.model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (step + 1))
    contents = CheckpointConfig(save_contents=["model", "optimizer", "extra", "hf_model"])
    tokenizer = AutoTokenizer.from_pretrained(folder / "model")
    return FSDPCheckpointManager(model, optimizer, scheduler, tokenizer, checkpoint_config=contents)


def _train(manager: Any) -> None:
    ids = torch.arange(12).reshape(2, 6)
    manager.model(input_ids=ids, labels=ids).loss.backward()
    manager.optimizer.step()
    manager.optimizer.zero_grad()
    manager.lr_scheduler.step()


def _process(rank: int, folder: Path) -> None:
    from sft.run.background_save import BackgroundSaves

    dist.init_process_group("gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=RANKS)
    manager = _manager(folder)
    _train(manager)
    saves = BackgroundSaves(manager)
    events: list[str] = []
    whole: dict[str, torch.Tensor] = {}

    def complete(model: dict[str, torch.Tensor]) -> None:
        events.append("complete")
        whole.update(model)

    manager.save_checkpoint(str(folder / "sync" / "actor"))
    saves.start(folder / "background", complete, nullcontext)
    before = {name: value.full_tensor().clone() for name, value in manager.model.state_dict().items()}
    _train(manager)  # in place, and with collectives, while the files are written
    saves.check()
    saves.start(folder / "next", lambda _: events.append("next"), nullcontext)  # waits for the first one
    assert events[:1] == (["complete"] if rank == 0 else [])
    if rank == 0:
        assert whole.keys() == before.keys() and all(torch.equal(whole[name], before[name]) for name in whole)

    @contextmanager
    def full() -> Iterator[None]:
        if rank == 1:
            raise OutOfSpace("no space left on this node")
        yield

    saves.start(folder / "fails", lambda _: events.append("never"), full)
    with pytest.raises(OutOfSpace, match="on this node"):  # both learn what happened to one
        saves.wait()
    saves.check()  # once
    assert events == (["complete", "next"] if rank == 0 else [])
    saves.close()
    dist.destroy_process_group()


def test_it_is_the_checkpoint_of_that_step_file_by_file(tmp_path: Path) -> None:
    tiny_model.build(tmp_path / "model", ["Where is the pear? In the box."] * 20)
    mp.start_processes(_process, args=(tmp_path,), nprocs=RANKS, start_method="spawn")

    def files(name: str) -> dict[str, bytes]:
        folder = tmp_path / name
        return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}

    waited, background = files("sync"), files("background")
    assert len(waited) > 3 * RANKS and waited.keys() == background.keys()
    assert [name for name in waited if waited[name] != background[name]] == []
    assert files("next")["actor/huggingface/model.safetensors"] != waited["actor/huggingface/model.safetensors"]
