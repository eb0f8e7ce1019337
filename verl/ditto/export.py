"""Make a checkpoint folder a model path for transformers and vLLM.

verl leaves the model under `actor/huggingface`, in PEFT's names and unmerged for LoRA runs, with a config.json that
claims bfloat16. Here the files move to the top of the checkpoint folder, LoRA is merged into the weights (computed in
float32, stored in the weights' own dtype), the adapter is kept beside them in PEFT's format, and config.json tells
the dtype that is stored.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from peft import LoraConfig
from safetensors.torch import load_file, save_file
from torch import Tensor

_PEFT_PREFIX = "base_model.model."
_INDEX = "model.safetensors.index.json"


def export_model(step_dir: Path, base: str) -> None:
    """Move the model of `actor/huggingface` to the top of the checkpoint folder, merged.

    Args:
        base: path or hub id of the model that training began with: what the adapter belongs on.

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
    meta = step_dir / "actor" / "lora_train_meta.json"
    if meta.exists():
        _merge_adapter(step_dir, json.loads(meta.read_text()), base)
    _tell_dtype(step_dir)


def _merge_adapter(step_dir: Path, meta: dict[str, Any], base: str) -> None:
    """Merge the low-rank factors into the weights, shard by shard, and keep them as `lora_adapter/`."""
    shards = sorted(step_dir.glob("*.safetensors"))
    adapter: dict[str, Tensor] = {}
    for shard in shards:  # the factors are small; they may lie in another shard than their weight
        adapter |= {_plain(key): tensor for key, tensor in load_file(shard).items() if ".lora_" in key}
    scale = float(meta["lora_alpha"]) / float(meta["r"])
    weight_map: dict[str, str] = {}
    for shard in shards:
        merged = {}
        for key, tensor in load_file(shard).items():
            if ".lora_" in key:
                continue
            module = key.removeprefix(_PEFT_PREFIX).replace(".base_layer.", ".")
            merged[module] = _with_lora(tensor, adapter, module.removesuffix(".weight"), scale)
        weight_map |= dict.fromkeys(merged, shard.name)
        save_file(merged, shard, metadata={"format": "pt"})
    index = step_dir / _INDEX
    if index.exists():
        described = json.loads(index.read_text())
        index.write_text(json.dumps({"metadata": described["metadata"], "weight_map": weight_map}, indent=1))
    _save_adapter(step_dir / "lora_adapter", adapter, meta, base)


def _plain(key: str) -> str:
    """PEFT's name of a factor, as its files spell it (without the adapter's name)."""
    return key.replace(".default.", ".")


def _with_lora(weight: Tensor, adapter: dict[str, Tensor], module: str, scale: float) -> Tensor:
    """W + alpha/r * B A, where the module has factors."""
    a = adapter.get(f"{_PEFT_PREFIX}{module}.lora_A.weight")
    b = adapter.get(f"{_PEFT_PREFIX}{module}.lora_B.weight")
    if a is None or b is None:
        return weight
    return (weight.float() + scale * (b.float() @ a.float())).to(weight.dtype).contiguous()


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
