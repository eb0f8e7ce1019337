"""Write a model in Hugging Face format from tensors in memory, beside the training (`background_save.py`)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, GenerationConfig
from verl.utils.transformers_compat import drop_tied_target_keys, get_auto_model_for_vision2seq


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
