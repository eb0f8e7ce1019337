"""Make a checkpoint folder a model path for transformers and vLLM.

verl leaves the model under `actor/huggingface`, in PEFT's names and unmerged for LoRA runs, with a config.json that
claims bfloat16. Here the files move to the top of the checkpoint folder, LoRA is merged into the weights (computed in
float32), the adapter is kept beside them in PEFT's format, and config.json tells the dtype that is stored. Weights get
the dtype of the model that training began with: float32 master weights of a bfloat16 model are rounded, which is what
vLLM computes with, at half the size. verl's own state keeps them whole for a resume.
"""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers.utils import cached_file

logger = logging.getLogger(__name__)
_PEFT_PREFIX = "base_model.model."
_INDEX = "model.safetensors.index.json"


def export_model(step_dir: Path, base: str) -> None:
    """Move the model of `actor/huggingface` to the top of the checkpoint folder, merged.

    Args:
        base: path or hub id of the model that training began with: what the adapter belongs on, and whose dtype the
            weights get.

    Raises:
        FileNotFoundError: `actor_rollout_ref.actor.checkpoint.save_contents` lacks hf_model.
    """
    source = step_dir / "actor" / "huggingface"
    if not list(source.glob("*.safetensors")):
        raise FileNotFoundError(
            f"{source}: no *.safetensors. A checkpoint that is a model path needs hf_model in "
            "actor_rollout_ref.actor.checkpoint.save_contents."
        )
    for path in source.iterdir():
        os.replace(path, step_dir / path.name)
    source.rmdir()
    meta_file = step_dir / "actor" / "lora_train_meta.json"
    _finish_weights(step_dir, json.loads(meta_file.read_text()) if meta_file.exists() else None, base)
    _tell_dtype(step_dir)


def _finish_weights(step_dir: Path, meta: dict[str, Any] | None, base: str) -> None:
    """Merge the low-rank factors, keep them as `lora_adapter/`, and store the weights in the base model's dtype."""
    shards = sorted(step_dir.glob("*.safetensors"))
    own = _dtype_of(base)
    adapter: dict[str, Tensor] = {}
    if meta is not None:
        for shard in shards:  # the factors are small; they may lie in another shard than their weight
            adapter |= {_plain(key): tensor for key, tensor in load_file(shard).items() if ".lora_" in key}
        _save_adapter(step_dir / "lora_adapter", adapter, meta, base)
    scale = float(meta["lora_alpha"]) / float(meta["r"]) if meta is not None else 0.0
    weight_map: dict[str, str] = {}
    stored = 0
    for shard in shards:
        trained, finished = load_file(shard), {}
        for key in list(trained):
            tensor = trained.pop(key)  # a shard may be the whole model: never hold it twice
            if ".lora_" in key:
                continue
            name = key.removeprefix(_PEFT_PREFIX).replace(".base_layer.", ".")
            dtype = own if own is not None and tensor.is_floating_point() else tensor.dtype
            finished[name] = _with_lora(tensor, adapter, name.removesuffix(".weight"), scale).to(dtype).contiguous()
            stored += finished[name].nbytes
        weight_map |= dict.fromkeys(finished, shard.name)
        save_file(finished, shard, metadata={"format": "pt"})
    index = step_dir / _INDEX
    if index.exists():
        metadata = json.loads(index.read_text())["metadata"] | {"total_size": stored}
        index.write_text(json.dumps({"metadata": metadata, "weight_map": weight_map}, indent=1))


def _dtype_of(base: str) -> torch.dtype | None:
    """The dtype that the config.json of a model names; None where it names none, or cannot be read any more."""
    try:
        config = json.loads(Path(cached_file(base, "config.json")).read_text())
    except OSError as error:
        logger.warning("%s cannot be read: the exported weights keep the dtype they are trained in. %s", base, error)
        return None
    for section in (config, config.get("text_config") or {}):  # a vision-language model's is the text model's
        name = section.get("dtype") or section.get("torch_dtype")
        if name:
            dtype: torch.dtype = getattr(torch, name)
            return dtype
    return None


def _plain(key: str) -> str:
    """PEFT's name of a factor, as its files spell it (without the adapter's name)."""
    return key.replace(".default.", ".")


def _with_lora(weight: Tensor, adapter: dict[str, Tensor], module: str, scale: float) -> Tensor:
    """W + alpha/r * B A in float32, where the module has factors."""
    a = adapter.get(f"{_PEFT_PREFIX}{module}.lora_A.weight")
    b = adapter.get(f"{_PEFT_PREFIX}{module}.lora_B.weight")
    if a is None or b is None:
        return weight
    return weight.float() + scale * (b.float() @ a.float())


def _save_adapter(folder: Path, adapter: dict[str, Tensor], meta: dict[str, Any], base: str) -> None:
    folder.mkdir()
    targets = sorted({key.rsplit(".lora_", 1)[0].rsplit(".", 1)[-1] for key in adapter})
    LoraConfig(
        r=int(meta["r"]),
        lora_alpha=int(meta["lora_alpha"]),
        target_modules=targets,
        task_type=meta["task_type"],
        base_model_name_or_path=str(Path(base).resolve()) if Path(base).exists() else base,  # a path, or a hub id
    ).save_pretrained(str(folder))
    save_file(adapter, folder / "adapter_model.safetensors", metadata={"format": "pt"})


def _tell_dtype(step_dir: Path) -> None:
    """config.json names the dtype that the weights have, and not how training computed attention."""
    shard = next(iter(sorted(step_dir.glob("*.safetensors"))))
    dtypes = [tensor.dtype for tensor in load_file(shard).values() if tensor.is_floating_point()]
    common = max(set(dtypes), key=dtypes.count)
    path = step_dir / "config.json"
    config = json.loads(path.read_text())
    config.pop("torch_dtype", None)
    config.pop("attn_implementation", None)
    config["dtype"] = str(common).removeprefix("torch.")
    path.write_text(json.dumps(config, indent=2))
