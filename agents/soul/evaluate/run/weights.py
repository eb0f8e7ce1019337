"""Check that the weights beside a config.json are complete. Only file headers are read, no tensors."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

_INDEX = "*.safetensors.index.json"


def damage(folder: Path) -> str | None:
    """What is wrong with the weights in a model or adapter folder, and the remedy; None if they are complete."""
    try:
        missing = [name for name in _shards(folder) if not (folder / name).is_file()]
        if missing:
            more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
            return f"{missing[0]}{more} of the weights is missing. Copy or download the model again."
        for file in sorted(folder.glob("*.safetensors")):
            size, expected = file.stat().st_size, _expected_size(file)
            if size != expected:
                return f"{file.name} has {size:,} bytes and should have {expected:,}. Copy or download it again."
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        reason = " ".join(str(error).split())[:200]
        return f"the weights cannot be read ({type(error).__name__}: {reason}). Copy or download the model again."
    if not [*folder.glob("*.safetensors"), *folder.glob("*.bin")]:
        return "there are no weights (*.safetensors). Name the folder that holds them."
    return None


def _shards(folder: Path) -> Iterator[str]:
    """The files that the index names."""
    for index in folder.glob(_INDEX):
        yield from sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))


def _expected_size(file: Path) -> int:
    """The bytes of a safetensors file by its header: the header's length (8 bytes), the header, the tensors."""
    with file.open("rb") as opened:
        length = int.from_bytes(opened.read(8), "little")
        if length > file.stat().st_size:
            raise ValueError(f"{file.name} ends within its header")
        header = json.loads(opened.read(length))
    tensors = [tensor for name, tensor in header.items() if name != "__metadata__"]
    return 8 + length + max((tensor["data_offsets"][1] for tensor in tensors), default=0)
