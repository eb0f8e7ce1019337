"""Turn a checkpoint folder into a model path for transformers and vLLM.

verl saves the model under `actor/huggingface`. In LoRA runs it has PEFT's tensor names and is not merged, and its
config.json always says bfloat16. Here the files move to the top of the checkpoint folder, LoRA is merged into the
weights (in float32), the adapter is saved separately in PEFT's format, and config.json gets the stored dtype. Weights
are stored in the dtype of the model that training started from: for a bfloat16 model, float32 master weights are
rounded to what vLLM computes with, at half the size. verl's own state keeps full precision for a resume.
"""

import json
import logging
import os
import re
import shutil
from collections import defaultdict
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import AutoTokenizer
from transformers.utils import cached_file

from ditto.policies import FIRST_ADAPTER
from ditto.run.manifest import writers
from ditto.run.reshard import joined_model
from soul.chat.control_tokens import special_tags, unmark
from soul.chat.model_chat import stop_ids
from soul.chat.template_check import fit_template
from soul.chat.template_file import TEMPLATE
from soul.errors import one_line

logger = logging.getLogger(__name__)
_PEFT_PREFIX = "base_model.model."
_FACTOR = re.compile(r"\.lora_\w+\.([^.]+)\.")
_INDEX = "model.safetensors.index.json"


def export_model(step_dir: Path, base: str) -> None:
    """Move the model of `actor/huggingface` to the top of the checkpoint folder, with LoRA merged.

    Args:
        base: path or hub id of the model that training started from. The adapter names it as its base model, and the
            weights get its dtype.
    """
    source = step_dir / "actor" / "huggingface"
    if not list(source.glob("*.safetensors")):
        raise FileNotFoundError(f"{source} has no *.safetensors, so the checkpoint cannot be loaded as a model.")
    for path in source.iterdir():
        os.replace(path, step_dir / path.name)
    source.rmdir()
    meta_file = step_dir / "actor" / "lora_train_meta.json"
    _finish_weights(step_dir, json.loads(meta_file.read_text()) if meta_file.exists() else None, base)
    _write_dtype(step_dir)
    complete_chat_files(step_dir)


def _finish_weights(step_dir: Path, meta: dict[str, Any] | None, base: str) -> None:
    """Merge the LoRA factors, save them as `lora_adapter/`, and store the weights in the base model's dtype."""
    shards = sorted(step_dir.glob("*.safetensors"))
    base_dtype = _dtype_of(base)
    adapter: dict[str, Tensor] = {}
    merged: set[str] = set()
    if meta is not None:
        trained: dict[str, Tensor] = {}
        for shard in shards:  # read all factors first: they may be in another shard than their weight
            trained |= {key: tensor for key, tensor in load_file(shard).items() if ".lora_" in key}
        adapter = _save_adapters(step_dir, step_dir, trained, meta, base)
    scale = float(meta["lora_alpha"]) / float(meta["r"]) if meta is not None else 0.0
    weight_map: dict[str, str] = {}
    stored_bytes = 0
    for shard in shards:
        trained, finished = load_file(shard), {}
        for key in list(trained):
            tensor = trained.pop(key)  # pop: a shard may be the whole model, which must not be in memory twice
            if ".lora_" in key:
                continue
            name = key.removeprefix(_PEFT_PREFIX).replace(".base_layer.", ".")
            dtype = base_dtype if base_dtype is not None and tensor.is_floating_point() else tensor.dtype
            module = f"{_PEFT_PREFIX}{name.removesuffix('.weight')}"
            factors = [f"{module}.lora_A.weight", f"{module}.lora_B.weight"]
            if adapter.keys() >= set(factors):
                a, b = (adapter[factor].float() for factor in factors)
                tensor = tensor.float() + scale * (b @ a)
                merged.update(factors)
            finished[name] = tensor.to(dtype).contiguous()
            stored_bytes += finished[name].nbytes
        weight_map |= dict.fromkeys(finished, shard.name)
        save_file(finished, shard, metadata={"format": "pt"})
    if left := sorted(adapter.keys() - merged):  # check_adapter refuses such an adapter before a run
        raise ValueError(
            f"{step_dir}: {left[0]} belongs to no weight, so the exported model would not be the trained one."
        )
    index = step_dir / _INDEX
    if index.exists():
        metadata = json.loads(index.read_text())["metadata"] | {"total_size": stored_bytes}
        index.write_text(json.dumps({"metadata": metadata, "weight_map": weight_map}, indent=1))


def _dtype_of(base: str) -> torch.dtype | None:
    """The dtype of a model's weights, by its config.json; None if that does not say."""
    try:
        config = json.loads(Path(cached_file(base, "config.json")).read_text())
    except OSError as error:
        logger.warning("Cannot read %s: the exported weights keep the dtype they were trained in. %s", base, error)
        return None
    for section in (config, config.get("text_config") or {}):  # in a vision-language model it is in text_config
        if name := section.get("dtype") or section.get("torch_dtype"):
            dtype: torch.dtype = getattr(torch, name)
            return dtype
    return None


def export_adapter(step_dir: Path, adapter: dict[str, Tensor], meta: dict[str, Any], base: str) -> None:
    """Save LoRA's factors as `lora_adapter/` in PEFT's format, for a checkpoint without the model.

    Args:
        adapter: the factors by their names in the trained model.
        meta: r, lora_alpha and task_type.
        base: path or hub id of the model that training started from.
    """
    saved = step_dir / "actor" / "huggingface"
    _save_adapters(step_dir, saved, {key: tensor.contiguous() for key, tensor in adapter.items()}, meta, base)
    shutil.rmtree(saved)  # a config without weights


def export_saved_adapter(step_dir: Path, base: str) -> None:
    """As `export_adapter`, with the factors of the checkpoint's own files, which hold nothing else."""
    actor = step_dir / "actor"
    ranks = writers(actor)
    if ranks is None:
        raise FileNotFoundError(f"{actor} has no model_world_size_*_rank_*.pt, from which the adapter is exported.")
    meta = json.loads((actor / "lora_train_meta.json").read_text())
    export_adapter(step_dir, joined_model(actor, ranks), meta, base)


def _save_adapters(
    step_dir: Path, tokenizer: Path, factors: dict[str, Tensor], meta: dict[str, Any], base: str
) -> dict[str, Tensor]:
    """Save `lora_adapter/`, and `lora_adapter_<policy>/` for each further policy. Returns the first one's factors."""
    adapters: defaultdict[str, dict[str, Tensor]] = defaultdict(dict)
    for key, tensor in factors.items():
        name = found[1] if (found := _FACTOR.search(key)) else FIRST_ADAPTER  # PEFT itself leaves the name out
        adapters[name][key.replace(f".{name}.", ".")] = tensor  # PEFT's own names
    for name, adapter in adapters.items():
        of_policy = "" if name == FIRST_ADAPTER else name.removeprefix("policy")
        _save_adapter(step_dir / f"lora_adapter{of_policy}", tokenizer, adapter, meta, base)
    return adapters[FIRST_ADAPTER]


def _save_adapter(folder: Path, tokenizer: Path, adapter: dict[str, Tensor], meta: dict[str, Any], base: str) -> None:
    """Save an adapter with the chat template of the training, in place of the base model's."""
    folder.mkdir()
    if (tokenizer / TEMPLATE).exists():
        shutil.copy(tokenizer / TEMPLATE, folder / TEMPLATE)
    targets = sorted({key.rsplit(".lora_", 1)[0].rsplit(".", 1)[-1] for key in adapter})
    LoraConfig(
        r=int(meta["r"]),
        lora_alpha=int(meta["lora_alpha"]),
        target_modules=targets,
        task_type=meta["task_type"],
        base_model_name_or_path=str(Path(base).resolve()) if Path(base).exists() else base,  # a path, or a hub id
    ).save_pretrained(str(folder))
    save_file(adapter, folder / "adapter_model.safetensors", metadata={"format": "pt"})


def _write_dtype(step_dir: Path) -> None:
    """Write the weights' dtype to config.json, and remove the attention implementation of the training."""
    shard = next(iter(sorted(step_dir.glob("*.safetensors"))))
    dtypes = [tensor.dtype for tensor in load_file(shard).values() if tensor.is_floating_point()]
    common = max(set(dtypes), key=dtypes.count)
    path = step_dir / "config.json"
    config = json.loads(path.read_text())
    config.pop("torch_dtype", None)
    config.pop("attn_implementation", None)
    config["dtype"] = str(common).removeprefix("torch.")
    path.write_text(json.dumps(config, indent=2))


def complete_chat_files(step_dir: Path) -> None:
    """Complete the chat files of a checkpoint, so that whatever serves it reads and writes the tokens of the training.

    A base model that is trained with a chat template often lists only its end of a document; a server would go on after
    the end of the turn. A tokenizer may mark <answer> as special; a server would drop it.

    Adds the token that ends a turn to `eos_token_id` in generation_config.json, and unmarks special paired tags.
    """
    if not (step_dir / "tokenizer_config.json").exists():
        return
    try:
        tokenizer = AutoTokenizer.from_pretrained(str(step_dir))
    except (OSError, ValueError) as error:  # a tokenizer with code of its own, which only its user may trust
        logger.warning("%s: generation_config.json and tokenizer stay as they are (%s)", step_dir, one_line(error))
        return
    if not tokenizer.chat_template:
        return
    listed = stop_ids(str(step_dir), False, tokenizer)
    found = fit_template(tokenizer, listed)
    if tags := special_tags(tokenizer, found.stop_ids):
        unmark(step_dir, tags)
    if not found.added_stop_ids:
        return
    file = step_dir / "generation_config.json"
    config = json.loads(file.read_text()) if file.exists() else {}
    config["eos_token_id"] = sorted({*listed, *found.added_stop_ids})
    file.write_text(json.dumps(config, indent=2) + "\n")
