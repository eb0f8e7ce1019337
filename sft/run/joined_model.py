"""The whole model of a checkpoint, joined from the files of all ranks, and as a model in Hugging Face format.

This needs no process of the training: `background_save.py` does it beside the training, in the memory of rank 0.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, GenerationConfig
from verl.utils.transformers_compat import drop_tied_target_keys, get_auto_model_for_vision2seq

from sft.run.reshard import joined, load_slices


def joined_model(actor: Path, ranks: int) -> dict[str, torch.Tensor]:
    """The tensors of the files `model_world_size_{ranks}_rank_*.pt`, whole, on the CPU.

    Raises:
        BadShards: the checkpoint is not sliced as FSDP2 does it.
    """
    slices = load_slices(actor, "model", ranks)
    return {name: joined([each[name] for each in slices], actor) for name in slices[0]}


class HfModelWriter:
    """Writes a model in Hugging Face format as verl's manager does, from tensors in memory.

    transformers builds an empty model for that. It changes torch's default dtype meanwhile, for all threads, so it is
    built once, before training starts.
    """

    def __init__(self, manager: Any) -> None:
        self._config = manager.model.config
        conditional = "ForConditionalGeneration" in self._config.architectures[0]
        kind = get_auto_model_for_vision2seq() if conditional else AutoModelForCausalLM
        with torch.device("meta"):
            trust = manager.trust_remote_code
            self._empty = kind.from_config(self._config, torch_dtype=torch.bfloat16, trust_remote_code=trust)

    def write(self, folder: Path, tensors: dict[str, torch.Tensor]) -> None:
        """Write the weights into a folder that has the config, and perhaps a generation config."""
        if (folder / "generation_config.json").is_file():
            self._empty.generation_config = GenerationConfig.from_pretrained(folder)
        kept = dict(tensors)
        drop_tied_target_keys(kept, self._empty, self._config)
        self._empty.save_pretrained(folder, state_dict=kept)
