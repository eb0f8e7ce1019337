"""The chunked head is accepted for each class and config whose logits are the output of `lm_head`, and for no other."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf
from torch import Tensor
from transformers import CONFIG_MAPPING, Gemma2Config, Qwen3Config

from ditto.model import chunked_models
from ditto.model.head_settings import check_head, head_problem
from ditto.settings import BadConfig

EXACT: dict[str, dict[str, Any]] = {
    **dict.fromkeys(("llama", "qwen2", "qwen3", "qwen3_vl", "qwen3_moe", "mistral", "gemma3_text", "olmo2"), {}),
    **dict.fromkeys(("olmo3", "phi3", "smollm3", "glm4", "granite", "qwen3_5", "qwen3_next"), {}),
    "gemma2": {"final_logit_softcapping": None},
    "cohere": {"logit_scale": 1.0},
}
SCALED: dict[str, dict[str, Any]] = {"granite": {"logits_scaling": 8.0}, "gemma2": {}, "cohere": {}}


@pytest.mark.parametrize("model_type", EXACT)
def test_log_probs_and_gradients_are_those_of_full_logits(model_type: str) -> None:
    assert head_problem(CONFIG_MAPPING[model_type](**EXACT[model_type])) is None


@pytest.mark.parametrize("model_type", SCALED)
def test_a_scale_or_a_cap_of_the_config_is_a_problem(model_type: str) -> None:
    assert "scales or caps" in str(head_problem(CONFIG_MAPPING[model_type](**SCALED[model_type])))


def test_a_gradient_that_differs_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    exact = chunked_models.token_log_probs

    def doubled(*arguments: Any) -> tuple[Tensor, Tensor]:
        """The same values, with twice the gradient."""
        first, second = (2 * output - output.detach() for output in exact(*arguments))
        return first, second

    monkeypatch.setattr(chunked_models, "token_log_probs", doubled)
    assert "log-probs or gradients differ by 1 of" in str(head_problem(CONFIG_MAPPING["llama"]()))


@pytest.mark.parametrize(
    ("model", "training", "named"),
    [
        ({}, {}, None),
        ({"external_lib": ["theirs", "ditto.model.install"]}, {}, None),
        ({"external_lib": None}, {}, "external_lib=None"),
        ({"path": "gemma2"}, {}, r"Gemma2ForCausalLM scales or caps .* Use model\.use_fused_kernels=false"),
        ({"fused_kernel_options": {"impl_backend": "torch"}}, {}, "impl_backend=torch"),
        ({"fused_kernel_options": {"impl_backend": "torch"}, "path": "tied"}, {}, None),
        ({}, {"entropy_checkpointing": True}, "entropy_checkpointing=true"),
    ],
)
def test_a_head_that_cannot_be_is_refused(
    model: dict[str, Any], training: dict[str, Any], named: str | None, tmp_path: Path
) -> None:
    Qwen3Config(tie_word_embeddings=False).save_pretrained(tmp_path / "untied")
    Qwen3Config(tie_word_embeddings=True).save_pretrained(tmp_path / "tied")
    Gemma2Config().save_pretrained(tmp_path / "gemma2")
    usual = {"external_lib": "ditto.model.install", "fused_kernel_options": {"impl_backend": "chunked"}}
    section = OmegaConf.create({"use_fused_kernels": True, "path": "untied", **usual, **model})
    section.path = str(tmp_path / section.path)
    with pytest.raises(BadConfig, match=named) if named else nullcontext():
        check_head(section, OmegaConf.create(training), "model")
