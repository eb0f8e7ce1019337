"""Two policies on the tiny model: their settings, their rows of a step, and a model with an adapter for each."""

from dataclasses import replace
from typing import Any

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from torch import Tensor

from ditto.launching.compose import load_config
from ditto.model.engine import DittoEngine
from ditto.settings import Settings
from tests.ditto.our_step import engine_of
from tests.ditto.tiny_step import Sequence_, sequences, tiny_model

LR = 0.05
USER, ASSISTANT = "policies.user={seats: [policy], objective: ditto}", "policies.assistant={seats: [partner]}"


def config_of(*words: str) -> Any:
    return load_config(["platform=cpu", "data.train_files=[a.parquet]", "data.val_files=[b.parquet]", *words])


def settings_of(*words: str) -> Settings:
    return Settings.from_config(config_of(*words))


BOTH = settings_of(USER, ASSISTANT, "algorithm.objective=grpo")
POLICIES = {policy.name: policy for policy in BOTH.policies}
ADAPTERS = {name: policy.adapter for name, policy in POLICIES.items()}


def rows_of(policy: str) -> list[Sequence_]:
    """The step's rows of a policy: the assistant has other rewards, and no refined episodes."""
    if policy == "user":
        return sequences("ditto")
    names = [(row, f"{row.prompt}:partner", f"{row.session}:partner") for row in sequences("grpo")]
    return [replace(row, reward=1.0 - row.reward**2, prompt=p, session=s) for row, p, s in names]


def adapted(*names: str) -> PeftModel:
    """The tiny model in float64 with these adapters, each with factors of its own."""
    config = LoraConfig(r=4, lora_alpha=8, target_modules=["q_proj", "v_proj", "down_proj"])
    model: PeftModel = get_peft_model(tiny_model(head=True), config, adapter_name="default").double()
    for name in names[1:]:
        model.add_adapter(name, config)
    return model.double().eval()


def live_factors(model: PeftModel, adapter: str) -> dict[str, torch.nn.Parameter]:
    """The parameters of an adapter, by a name without the adapter's."""
    named = model.named_parameters()
    return {name.replace(f".{adapter}.", "."): value for name, value in named if f".{adapter}." in name}


def factors(model: PeftModel, adapter: str) -> dict[str, Tensor]:
    return {name: value.detach().clone() for name, value in live_factors(model, adapter).items()}


def engine_on(model: PeftModel) -> DittoEngine:
    engine = engine_of(model)
    engine.optimizer = torch.optim.AdamW(model.parameters(), lr=LR, weight_decay=0.1)
    return engine
