"""Every objective on the tiny step: options, formula in float64, and a model that is trained whole or by LoRA."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, get_peft_model
from torch import Tensor

from tests.ditto.objectives import test_formulas, test_on_policy_distillation, test_sdpo
from tests.ditto.tiny_step import Sequence_, tiny_model

MODE = "token-mean"
PROJECTIONS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj"]  # each reads 16 values
Model = torch.nn.Module

SDPO = {"teacher_rate": 0.5, "top_k": 5, "ratio_clip": 2.0}
OPTIONS: dict[str, dict[str, Any]] = {
    "ditto": {"feedback_coef": 0.5},
    "rltf_sd": {"rltf": test_formulas.RLTF},
    "sdpo_token": {"sdpo": SDPO},
    "sdpo_logits": {"sdpo": SDPO},
    "sdpo_token_grpo": {"sdpo": {**SDPO, "weight": 0.3}},
    "sdpo_logits_grpo": {"sdpo": {**SDPO, "weight": 0.3}},
    "on_policy_distillation": {"distill": {"teachers": test_on_policy_distillation.TEACHERS}},
    "on_policy_distillation_logits": {"distill": {"teachers": test_on_policy_distillation.TEACHERS, "top_k": 5}},
}


@dataclass(frozen=True)
class Mini:
    """The rows of a mini-batch, and for each row its old log-probs and the teacher's prompt."""

    rows: Sequence[Sequence_]
    old: Sequence[Sequence[float]]
    taught: Sequence[tuple[int, ...]]


def _by_rewards(formula: test_formulas.Formula) -> Callable[[Model, Model, Mini], Tensor]:
    return lambda student, _teacher, batch: formula(student, batch.rows, batch.old, MODE)


def _by_teacher(*, token: bool, weight: float | None = None) -> Callable[[Model, Model, Mini], Tensor]:
    return lambda student, teacher, batch: test_sdpo.formula(
        student, teacher, batch.rows, batch.taught, batch.old, MODE, token=token, weight=weight
    )


def _by_experts(*, token: bool) -> Callable[[Model, Model, Mini], Tensor]:
    return lambda student, _teacher, batch: test_on_policy_distillation.formula(
        student, test_on_policy_distillation.experts(), batch.rows, batch.old, MODE, token=token
    )


# What an update of each objective minimises; the options are `OPTIONS`.
FORMULAS: dict[str, Callable[[Model, Model, Mini], Tensor]] = {
    "grpo": _by_rewards(test_formulas.drafts_by_grpo),
    "ditto": _by_rewards(partial(test_formulas.ditto, feedback_coef=0.5)),
    "ditto_no_feedback_loss": _by_rewards(test_formulas.joint),
    "ditto_refined_only": _by_rewards(test_formulas.refined_only),
    "rltf_sd": _by_rewards(partial(test_formulas.rltf_sd, weight=0.3, gamma=0.4, least=-3.0)),
    "erl": _by_rewards(test_formulas.erl(lambda row: float(row.reward > test_formulas.DRAFTS[row.session]))),
    "critique_grpo": _by_rewards(test_formulas.critique_grpo),
    "sdpo_token": _by_teacher(token=True),
    "sdpo_logits": _by_teacher(token=False),
    "sdpo_token_grpo": _by_teacher(token=True, weight=0.3),
    "sdpo_logits_grpo": _by_teacher(token=False, weight=0.3),
    "on_policy_distillation": _by_experts(token=True),
    "on_policy_distillation_logits": _by_experts(token=False),
}


def new_model(adapter: str | None, folder: Path | None = None, *, head: bool = False) -> Model:
    """The tiny model in float64, every weight a float32 number.

    Args:
        adapter: "random" is a LoRA adapter of rank 4 with two random factors; None trains all weights.
        folder: where to write the adapter.
        head: with the chunked head.
    """
    model: Any = tiny_model(head=head).float()
    if adapter is not None:
        size = {"r": 4, "target_modules": [*PROJECTIONS, "down_proj"]}
        model = get_peft_model(model, LoraConfig(**size, lora_alpha=16, task_type="CAUSAL_LM"))
        chance = torch.Generator().manual_seed(3)
        for name, parameter in model.named_parameters():
            if "lora_" in name:  # peft's B is zero, and with it the gradient of A
                torch.nn.init.normal_(parameter.data, std=0.2, generator=chance)
        if folder is not None:
            model.save_pretrained(folder)
    model.double()
    return model
