"""A teacher scores without dropout, also while its student trains with it."""

import pytest
import torch
from peft import LoraConfig, get_peft_model
from verl.utils import tensordict_utils as tu

from tests.ditto.objectives.test_sdpo import drafts
from tests.ditto.our_step import engine_of, settings_of, step_data
from tests.ditto.tiny_step import old_log_probs, tiny_model


def test_the_policy_as_its_own_teacher_says_the_same_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = drafts()
    settings = settings_of("sdpo_token", sdpo={"teacher": "live"})
    prompts = [row.prompt_ids if row.valid else () for row in rows]
    old = old_log_probs(tiny_model(), rows, None)
    _, data = step_data(rows, old, settings, "token-mean", 1, monkeypatch, teacher_prompts=prompts)
    adapter = LoraConfig(r=4, lora_dropout=0.5, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM")
    model = get_peft_model(tiny_model(head=True).float(), adapter)
    for name, parameter in model.named_parameters():
        if "lora_" in name:
            torch.nn.init.normal_(parameter.data, std=0.2)
    engine = engine_of(model.double().train())
    tu.assign_non_tensor(
        data, use_remove_padding=True, temperature=1.0, calculate_entropy=False, use_fused_kernels=True
    )
    said = [engine._score_with_feedback(data, "log_probs", settings.options.sdpo).values for _ in range(2)]
    assert torch.equal(*said)
    assert model.training and all(part.training for part in model.modules() if isinstance(part, torch.nn.Dropout))
