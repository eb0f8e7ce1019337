"""verl's FSDP engine, with frozen weights stored in the dtype of the computation.

Trained weights must be float32: an AdamW step at a learning rate of 5e-6 is too small to change a bfloat16 weight of
ordinary size. verl has one dtype for the whole model (`fsdp_config.model_dtype`) and casts new LoRA factors to it, so a
float32 adapter means a float32 base: 4 bytes per weight on the GPUs, in host memory and in every checkpoint, rounded to
bfloat16 before each use. FSDP2 requires one dtype only for the *trained* parameters of a group (torch 2.13,
FSDPParamGroup._init_mp_dtypes), so the frozen base can be stored in bfloat16. Updates are bitwise the same.

verl finds this engine in its registry by the vendor of the device; `model.external_lib` imports it before a model is
built.
"""

from __future__ import annotations

import warnings
from typing import Any

import torch
from verl.utils.torch_dtypes import PrecisionType
from verl.workers.engine import EngineRegistry, FSDPEngineWithLMHead


@EngineRegistry.register(
    model_type="language_model", backend=["fsdp2"], device="cuda", vendor=["nvidia", "cpu"]
)  # the CPU platform asks for verl's "cuda" engines (ditto/verl_hooks/platform_cpu.py)
class DittoEngine(FSDPEngineWithLMHead):
    """Trains in `model_dtype`, keeps frozen weights in `mixed_precision.param_dtype` (bfloat16 unless set)."""

    def _build_lora_module(self, module: torch.nn.Module) -> torch.nn.Module:
        with warnings.catch_warnings():  # peft warns if a text model has no module that exclude_modules matches
            warnings.filterwarnings("ignore", "You have passed exclude_modules")
            peft_model: torch.nn.Module = super()._build_lora_module(module)
        mixed_precision: dict[str, Any] = self.engine_config.mixed_precision or {}
        compute_dtype = PrecisionType.to_dtype(mixed_precision.get("param_dtype", "bf16"))
        for parameter in peft_model.parameters():
            if not parameter.requires_grad:
                parameter.data = parameter.data.to(compute_dtype)
        return peft_model
