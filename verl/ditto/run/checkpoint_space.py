"""Check that the disk has room for a checkpoint before it is written, and report it clearly if it fills up anyway."""

from __future__ import annotations

import math
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from safetensors import safe_open

from ditto.run import checkpoint
from soul.files import disk_space

# Bytes per parameter in verl's state: weights and Adam's two moments in float32; in LoRA runs, frozen bfloat16 weights.
FULL_BYTES, LORA_BYTES = 12, 2


@contextmanager
def reserve_space(root: Path, model: str, lora: bool, adapter_alone: bool = False) -> Iterator[None]:
    """A block that writes a checkpoint. If it fails, nothing of the checkpoint is left behind.

    Args:
        root: the folder of the run's checkpoints.
        model: path or hub id of the model that training started from.
        lora: whether the run trains a LoRA adapter.
        adapter_alone: whether checkpoints hold the adapter without the model.

    Raises:
        OutOfSpace: before the block if too little is free, or in place of the error that a full disk raised in it.
    """
    root.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(root / checkpoint.PARTIAL, ignore_errors=True)
    needed = needed_bytes(root, model, lora, adapter_alone)
    disk_space.require(root, needed)
    try:
        with disk_space.guarded_writes(root, lambda: needed):
            yield
    except BaseException:
        shutil.rmtree(root / checkpoint.PARTIAL, ignore_errors=True)
        raise


def needed_bytes(root: Path, model: str, lora: bool, adapter_alone: bool = False) -> int:
    """Bytes that the next checkpoint needs: as many as the last one, else an estimate from the model.

    The estimate is the weights plus verl's state; 0 if the model is not a local folder with safetensors,
    and for an adapter alone.
    """
    steps = checkpoint.saved_steps(root)
    if steps:
        return sum(file.stat().st_size for file in (root / f"global_step_{steps[-1]}").rglob("*") if file.is_file())
    if adapter_alone:
        return 0
    weights = sorted(Path(model).glob("*.safetensors"))
    state = sum(_parameters(file) for file in weights) * (LORA_BYTES if lora else FULL_BYTES)
    return state + sum(file.stat().st_size for file in weights)


def _parameters(file: Path) -> int:
    with safe_open(file, "pt") as tensors:
        return sum(math.prod(tensors.get_slice(name).get_shape()) for name in tensors.keys())
