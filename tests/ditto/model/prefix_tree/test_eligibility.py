"""`algorithm.prefix_tree=auto` computes trees where that is exact, and says why where it does not."""

from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf
from transformers import LlamaConfig, MistralConfig, Qwen3Config

from ditto.model.prefix_tree.eligibility import ineligible_reason
from tests.ditto.our_step import settings_of

SMALL: dict[str, Any] = dict(hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=2)
WINDOW = dict(use_sliding_window=True, sliding_window=4, max_window_layers=1)
MODEL = "actor_rollout_ref.model"


def reason(folder: Path, model: Any, objective: str = "ditto", option: str = "auto", **overrides: object) -> str | None:
    model.save_pretrained(folder)
    config = OmegaConf.create(
        {
            "trainer": {"device": "cpu"},
            "actor_rollout_ref": {
                "model": {
                    "path": str(folder),
                    "use_remove_padding": True,
                    "override_config": {"attn_implementation": "packed"},
                },
                "actor": {"fsdp_config": {}},
                "ref": {"fsdp_config": {}},
            },
        }
    )
    for key, value in overrides.items():
        OmegaConf.update(config, key, value)
    return ineligible_reason(config, settings_of(objective, prefix_tree=option))


@pytest.mark.parametrize(
    ("because", "config", "objective", "overrides"),
    [
        ("runs a teacher", {}, "sdpo_logits", {}),
        ("attention is sdpa", {}, "ditto", {f"{MODEL}.override_config.attn_implementation": "sdpa"}),
        ("are padded", {}, "ditto", {f"{MODEL}.use_remove_padding": False}),
        ("sliding window", WINDOW, "ditto", {}),
        ("trained with dropout", {"attention_dropout": 0.1}, "ditto", {}),
    ],
)
def test_where_a_tree_would_not_be_exact_the_reason_is_named(
    because: str, config: dict[str, Any], objective: str, overrides: dict[str, object], tmp_path: Path
) -> None:
    assert because in str(reason(tmp_path, Qwen3Config(**SMALL, **config), objective, **overrides))


def test_off_an_unknown_model_and_float32_on_a_gpu_are_reasons(tmp_path: Path) -> None:
    qwen = Qwen3Config(**SMALL)
    assert reason(tmp_path, qwen) is reason(tmp_path, LlamaConfig(**SMALL), "grpo") is None
    assert reason(tmp_path, qwen, option="off") == "algorithm.prefix_tree=off"
    fp32 = {"trainer.device": "cuda", "actor_rollout_ref.actor.fsdp_config.mixed_precision": {"param_dtype": "fp32"}}
    assert "on a GPU" in str(reason(tmp_path, qwen, **fp32))
    assert "not for mistral" in str(reason(tmp_path, MistralConfig(**SMALL)))
