"""Small models of many classes: packed rows and the chunked head are exact, or the run is refused with a remedy."""

import json
import runpy
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf
from torch import Tensor
from transformers import CONFIG_MAPPING, AutoConfig, Gemma2Config, Qwen3Config, dynamic_module_utils

import ditto.model.attention  # noqa: F401 - registers packed
from ditto.model import chunked_head
from ditto.model.exactness import TOLERANCE, check_head, check_packing, deviation, head_problem, small_config
from ditto.settings import BadConfig

EXACT = ("llama", "qwen3_moe", "gemma3_text")
LEAK: dict[str, dict[str, Any]] = {"lfm2": {"layer_types": ["conv", "full_attention"] * 16}, "qwen3_next": {}}
ROOT = Path(__file__).resolve().parents[3]


def small(model_type: str, **kwargs: Any) -> Any:
    found = small_config(CONFIG_MAPPING[model_type](**kwargs).get_text_config())
    assert found is not None
    return found


@pytest.mark.parametrize("model_type", EXACT)
def test_attention_keeps_the_rows_of_a_pack_apart(model_type: str) -> None:
    assert deviation(small(model_type), "packed", packed=True) < TOLERANCE


@pytest.mark.parametrize("model_type", LEAK)
def test_a_state_or_a_convolution_runs_over_the_border_of_a_pack_and_not_of_padded_rows(model_type: str) -> None:
    text = small(model_type, **LEAK[model_type])
    assert deviation(text, "packed", packed=True) > 0.1
    assert deviation(text, "sdpa", packed=False) < TOLERANCE


def check(folder: Path, *, packed: bool, attention: str) -> None:
    model = {
        "path": str(folder),
        "use_remove_padding": packed,
        "override_config": {"attn_implementation": attention},
    }
    check_packing(OmegaConf.create(model), "model")


def test_a_run_that_would_leak_is_refused_with_padded_rows_as_the_remedy(tmp_path: Path) -> None:
    CONFIG_MAPPING["lfm2"](**LEAK["lfm2"]).save_pretrained(tmp_path)
    with pytest.raises(BadConfig, match=r"influence each other.* Set model\.use_remove_padding=false, with which"):
        check(tmp_path, packed=True, attention="packed")
    check(tmp_path, packed=False, attention="packed")


def test_a_soft_cap_that_the_attention_drops_is_found_in_padded_rows_too(tmp_path: Path) -> None:
    CONFIG_MAPPING["gemma2"]().save_pretrained(tmp_path)
    for packed in (True, False):
        with pytest.raises(BadConfig, match=r"use_remove_padding=true and .*attn_implementation=eager"):
            check(tmp_path, packed=packed, attention="sdpa")
        for attention in ("eager", "flash_attention_2"):  # a kernel that computes the cap
            check(tmp_path, packed=packed, attention=attention)


def test_a_model_that_cannot_be_built_is_refused_but_with_padded_rows_and_plain_attention(tmp_path: Path) -> None:
    CONFIG_MAPPING["dbrx"]().save_pretrained(tmp_path)  # transformers cannot build it
    for packed, attention in ((True, "eager"), (True, "packed"), (False, "sdpa")):
        with pytest.raises(BadConfig, match=r"cannot be built small .* Set model\.use_remove_padding=false"):
            check(tmp_path, packed=packed, attention=attention)
    check(tmp_path, packed=False, attention="eager")


def test_code_that_comes_with_a_checkpoint_is_checked_for_its_rows_and_keeps_its_head(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dynamic_module_utils, "HF_MODULES_CACHE", str(tmp_path / "modules"))
    (tmp_path / "mine.py").write_text(
        "from transformers import LlamaConfig, LlamaForCausalLM\n\n"
        "class MineConfig(LlamaConfig):\n    model_type = 'mine'\n\n"
        "class MineForCausalLM(LlamaForCausalLM):\n    config_class = MineConfig\n"
    )
    named = {"AutoConfig": "mine.MineConfig", "AutoModelForCausalLM": "mine.MineForCausalLM"}
    text = {"model_type": "mine", "architectures": ["MineForCausalLM"], "auto_map": named}
    (tmp_path / "config.json").write_text(json.dumps(text))
    model = {"path": str(tmp_path), "trust_remote_code": True, "use_remove_padding": True}
    check_packing(OmegaConf.create(model), "model")
    whole = AutoConfig.from_pretrained(tmp_path, trust_remote_code=True)
    assert head_problem(whole) == "its code comes with the checkpoint"


# ---- the head -------------------------------------------------------------------------------------------------------

EXACT_HEAD: dict[str, dict[str, Any]] = {
    **dict.fromkeys(("llama", "qwen3", "qwen3_vl", "qwen3_moe", "gemma3_text", "granite"), {}),
    "gemma2": {"final_logit_softcapping": None},
    "cohere": {"logit_scale": 1.0},
}
SCALED: dict[str, dict[str, Any]] = {"granite": {"logits_scaling": 8.0}, "gemma2": {}, "cohere": {}}


@pytest.mark.parametrize("model_type", EXACT_HEAD)
def test_log_probs_and_gradients_are_those_of_full_logits(model_type: str) -> None:
    assert head_problem(CONFIG_MAPPING[model_type](**EXACT_HEAD[model_type])) is None


@pytest.mark.parametrize("model_type", SCALED)
def test_a_scale_or_a_cap_of_the_config_is_a_problem(model_type: str) -> None:
    assert "scales or caps" in str(head_problem(CONFIG_MAPPING[model_type](**SCALED[model_type])))


def test_a_gradient_that_differs_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    exact = chunked_head.token_log_probs

    def doubled(*arguments: Any) -> tuple[Tensor, Tensor]:
        """The same values, with twice the gradient."""
        first, second = (2 * output - output.detach() for output in exact(*arguments))
        return first, second

    monkeypatch.setattr(chunked_head, "token_log_probs", doubled)
    assert "log-probs or gradients differ by 1 of" in str(head_problem(CONFIG_MAPPING["llama"]()))


@pytest.mark.parametrize(
    ("model", "named"),
    [
        ({}, None),
        ({"external_lib": ["theirs", "ditto.model.install"]}, None),
        ({"external_lib": None}, r"external_lib=\[\]"),
        ({"path": "gemma2"}, r"Gemma2ForCausalLM scales or caps .* Use model\.use_fused_kernels=false"),
        ({"fused_kernel_options": {"impl_backend": "torch"}}, "impl_backend=torch"),
    ],
)
def test_a_head_that_cannot_be_is_refused(model: dict[str, Any], named: str | None, tmp_path: Path) -> None:
    Qwen3Config(tie_word_embeddings=False).save_pretrained(tmp_path / "untied")
    Gemma2Config().save_pretrained(tmp_path / "gemma2")
    usual = {"external_lib": "ditto.model.install", "fused_kernel_options": {"impl_backend": "chunked"}}
    section = OmegaConf.create({"use_fused_kernels": True, "path": "untied", **usual, **model})
    section.path = str(tmp_path / section.path)
    with pytest.raises(BadConfig, match=named) if named else nullcontext():
        check_head(section, "model")


@pytest.mark.e2e
def test_the_page_of_models_says_what_the_check_finds() -> None:
    page = runpy.run_path(str(ROOT / "docs" / "models.py"))["page"]()
    assert (ROOT / "docs" / "models.md").read_text(encoding="utf-8") == page, "run: python docs/models.py"
