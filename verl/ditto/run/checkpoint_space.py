"""Room for a checkpoint: looked for before it is written, and named where it runs out all the same."""

from __future__ import annotations

import math
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from safetensors import safe_open

from ditto.run import checkpoint
from soul.files import disk_space

# verl keeps weights and Adam's two moments in float32; the frozen weights of a LoRA run may be in two bytes.
FULL_BYTES, LORA_BYTES = 12, 2


@contextmanager
def room(root: Path, model: str, lora: bool) -> Iterator[None]:
    """Write a checkpoint in this block. One that fails leaves nothing behind.

    Args:
        root: the folder of the run's checkpoints.
        model: path or hub id of the model that training began with.

    Raises:
        OutOfSpace: before the block, where too little is free; or in place of what a full disk raised in it.
    """
    root.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(root / checkpoint.PARTIAL, ignore_errors=True)
    needed = needed_bytes(root, model, lora)
    disk_space.require(root, needed)
    try:
        with disk_space.guarded_writes(root, lambda: needed):
            yield
    except BaseException:
        shutil.rmtree(root / checkpoint.PARTIAL, ignore_errors=True)
        raise


def needed_bytes(root: Path, model: str, lora: bool) -> int:
    """What the next checkpoint takes: as much as the last one, else at least the model's weights and verl's state.

    0 where the model is no local folder of safetensors.
    """
    steps = checkpoint.saved_steps(root)
    if steps:
        return sum(file.stat().st_size for file in (root / f"global_step_{steps[-1]}").rglob("*") if file.is_file())
    weights = sorted(Path(model).glob("*.safetensors"))
    state = sum(_parameters(file) for file in weights) * (LORA_BYTES if lora else FULL_BYTES)
    return state + sum(file.stat().st_size for file in weights)


def _parameters(file: Path) -> int:
    with safe_open(file, "pt") as tensors:
        return sum(math.prod(tensors.get_slice(name).get_shape()) for name in tensors.keys())
