"""Small models of many classes: rows of a pack are exact, or the run is refused with what works instead."""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf
from transformers import CONFIG_MAPPING, AutoConfig, dynamic_module_utils

import ditto.model.attention  # noqa: F401 - registers packed
from ditto.model.head_settings import head_problem
from ditto.model.pack_check import check_packing, deviation
from ditto.model.small_models import TOLERANCE, small_config
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
    remedy = r"Set model\.use_remove_padding=false and model\.override_config\.attn_implementation=eager"
    for packed, attention in ((True, "eager"), (True, "packed"), (False, "sdpa")):
        with pytest.raises(BadConfig, match=f"cannot build a small dbrx .* {remedy}"):
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


@pytest.mark.e2e
def test_the_page_of_models_says_what_the_check_finds() -> None:
    page = runpy.run_path(str(ROOT / "docs" / "models.py"))["page"]()
    assert (ROOT / "docs" / "models.md").read_text(encoding="utf-8") == page, "run: python docs/models.py"
