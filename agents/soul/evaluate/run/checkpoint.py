"""The models that an evaluation can serve: a hub id, a Hugging Face folder, a run's `global_step_N`, a LoRA adapter.

A run folder stands for its latest checkpoint. A checkpoint is identified by the content of its files, not by its path:
training may write another `global_step_50` to the same place, and its samples must not mix with those of the first.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from soul.errors import SoulError
from soul.evaluate.run.settings import short_names
from soul.files.json_object import read_object
from soul.files.lora_adapter import unusual_options

CONTEXT = 17_408  # tokens: prompts of 8,192, answers of 8,192, and room for the template
LARGEST_RANK = 512  # of a LoRA adapter that vLLM serves
TRACKER = "latest_checkpointed_iteration.txt"  # holds the N of the latest global_step_N
_ENDS = 1 << 20  # bytes at each end of a file that are hashed: any training step changes some of them
_HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")
_GENERIC = re.compile(r"global_step_\d+|lora_adapter|huggingface|actor")  # such a folder's name needs those above it
_HASHED = ("*.safetensors", "*.bin", "*.json", "*.jinja", "*.txt", "*.model")


class BadCheckpoint(SoulError):
    """A path does not lead to a model that vLLM can serve."""


@dataclass(frozen=True)
class Checkpoint:
    """A model to serve.

    Attributes:
        name: the model's name in requests, tables and folders.
        model: the folder or hub id that the server loads.
        adapter: the folder of a LoRA adapter for it.
        fingerprint: a hash of the files, or the hub id.
    """

    name: str
    model: str
    adapter: Path | None
    fingerprint: str

    @classmethod
    def find(cls, path: str, base: str | None = None) -> Checkpoint:
        """The checkpoint at a path, or with a hub id.

        Args:
            base: the base model of a LoRA adapter; None: the one in its adapter_config.json.

        Raises:
            BadCheckpoint: a file is missing or damaged.
        """
        folder = Path(path).expanduser()
        if not folder.exists():
            if _HUB_ID.fullmatch(path):
                return cls(path.replace("/", "--"), path, None, path)
            raise BadCheckpoint(f"{path}: there is no such folder, and it is not a hub id (owner/name) either.")
        folder = latest_checkpoint(folder)
        parts = folder.resolve().parts[1:]
        name = "-".join(parts[-_least_parts(parts) :])
        is_adapter = (folder / "adapter_config.json").is_file()
        if not is_adapter and not (folder / "config.json").is_file():
            raise BadCheckpoint(
                f"{folder}: no config.json, so it is not a Hugging Face folder. Pass a global_step_N folder of this "
                "project, or convert raw verl shards with python -m verl.model_merger."
            )
        config = _config(folder / ("adapter_config.json" if is_adapter else "config.json"))
        below = base or config.get("base_model_name_or_path")
        if is_adapter and not below:
            raise BadCheckpoint(f"{folder}: adapter_config.json names no base model. Set BASE_MODEL_PATH (--base).")
        if is_adapter:
            _check_adapter(folder, config)
        if problem := find_weight_problem(folder):
            raise BadCheckpoint(f"{folder}: {problem}")
        if not is_adapter:
            return cls(name, str(folder), None, _fingerprint(folder))
        model = cls.find(str(below))
        return cls(name, model.model, folder, f"{_fingerprint(folder)} on {model.fingerprint}")

    @classmethod
    def find_all(cls, paths: Sequence[str], base: str | None = None) -> list[Checkpoint]:
        """The checkpoints at several paths, without duplicates. If two would have the same name, the names of their
        parent folders are added (seed_1-run, seed_2-run).

        Raises:
            BadCheckpoint: as `find`.
        """
        places = {Path(each.adapter or each.model).resolve(): each for each in (cls.find(path, base) for path in paths)}
        # A hub id has no parent folders.
        parts = [place.parts[1:] if place.exists() else (each.name,) for place, each in places.items()]
        names = short_names(parts, [_least_parts(each) for each in parts])
        return [replace(each, name=name) for each, name in zip(places.values(), names, strict=True)]

    @property
    def config(self) -> dict[str, Any]:
        """The language model's part of config.json; empty for a model that is not downloaded yet."""
        file = Path(self.model) / "config.json"
        config = _config(file) if file.is_file() else {}
        return dict(config.get("text_config") or config)

    @property
    def context(self) -> int:
        """The most tokens of prompt and answer together; at most the model's own limit."""
        return min(CONTEXT, int(self.config.get("max_position_embeddings") or CONTEXT))

    @property
    def lora_rank(self) -> int | None:
        """The adapter's rank; None without an adapter."""
        return int(_config(self.adapter / "adapter_config.json")["r"]) if self.adapter else None


def latest_checkpoint(folder: Path) -> Path:
    """The latest checkpoint of a run folder; any other folder as it is. Raises BadCheckpoint if it is missing."""
    tracker = folder / TRACKER
    if not tracker.is_file():
        return folder
    latest = folder / f"global_step_{tracker.read_text(errors='replace').strip()}"
    if not latest.is_dir():
        raise BadCheckpoint(f"{tracker} names {latest.name}, which does not exist. Name another checkpoint.")
    return latest


def _least_parts(parts: Sequence[str]) -> int:
    """The number of trailing parts of a path that identify a folder, as in run-global_step_50-lora_adapter."""
    generic = sum(1 for _ in itertools.takewhile(_GENERIC.fullmatch, reversed(parts)))
    return min(generic + 1, len(parts))


def _config(file: Path) -> dict[str, Any]:
    return read_object(file, BadCheckpoint, "Copy or download the model again.")


def _check_adapter(folder: Path, config: dict[str, Any]) -> None:
    """Refuse an adapter that vLLM would not serve as it was trained."""
    rank = config.get("r")
    if not isinstance(rank, int) or not 1 <= rank <= LARGEST_RANK:
        raise BadCheckpoint(
            f"{folder}: adapter_config.json has the rank r={rank!r}; vLLM serves ranks from 1 to {LARGEST_RANK}."
        )
    if unusual := [each for each in unusual_options(config) if each != "use_rslora=True"]:  # vLLM scales that one
        raise BadCheckpoint(
            f"{folder}: adapter_config.json has {', '.join(unusual)}, which vLLM does not serve as it was trained. "
            "Merge the adapter into its base model (peft: merge_and_unload), and evaluate that."
        )


def _fingerprint(folder: Path) -> str:
    """A hash of the names, sizes and both ends of a model's files."""
    digest = hashlib.sha256()
    for file in sorted(file for pattern in _HASHED for file in folder.glob(pattern)):
        size = file.stat().st_size
        digest.update(f"{file.name}:{size}:".encode())
        with file.open("rb") as opened:
            digest.update(opened.read(_ENDS))
            if size > 2 * _ENDS:
                opened.seek(-_ENDS, os.SEEK_END)
            digest.update(opened.read())
    return digest.hexdigest()[:16]


def find_weight_problem(folder: Path) -> str | None:
    """The problem with the weights in a model or adapter folder, and the remedy; None if they are complete."""
    again = "Copy or download the model again."
    try:
        for index in folder.glob("*.safetensors.index.json"):
            for name in sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())):
                if not (folder / name).is_file():
                    return f"{name} of the weights is missing. {again}"
        for file in sorted(folder.glob("*.safetensors")):
            size, expected = file.stat().st_size, _expected_size(file)
            if size != expected:
                return f"{file.name} has {size:,} bytes and should have {expected:,}. {again}"
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        reason = " ".join(str(error).split())[:200]
        return f"the weights cannot be read ({type(error).__name__}: {reason}). {again}"
    if not [*folder.glob("*.safetensors"), *folder.glob("*.bin")]:
        return "there are no weights (*.safetensors). Pass the folder that holds them."
    return None


def _expected_size(file: Path) -> int:
    """The bytes of a safetensors file by its header: the header's length (8 bytes), the header, the tensors."""
    with file.open("rb") as opened:
        length = int.from_bytes(opened.read(8), "little")
        if length > file.stat().st_size:
            raise ValueError(f"{file.name} ends within its header")
        header = json.loads(opened.read(length))
    tensors = [tensor for name, tensor in header.items() if name != "__metadata__"]
    return 8 + length + max((tensor["data_offsets"][1] for tensor in tensors), default=0)
