"""Adapters are trained only if their sampled, merged and exported forms compute what the trained model computes."""

from pathlib import Path
from typing import Any

import pytest
from omegaconf import DictConfig, OmegaConf
from peft import LoraConfig, get_peft_model
from transformers import Qwen3MoeConfig

from ditto.model.adapter_check import check_adapter
from ditto.settings import BadConfig
from soul.evaluate.run.checkpoint import BadCheckpoint, Checkpoint
from tests.ditto.tiny_step import tiny_model

RANK, ALPHA = 4, 8


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("base")
    tiny_model().float().save_pretrained(folder)
    return folder


def model_section(base: Path, **values: Any) -> DictConfig:
    usual = {"path": str(base), "lora_rank": RANK, "lora_alpha": ALPHA, "target_modules": "all-linear"}
    fixed = {"exclude_modules": None, "lora_adapter_path": None, "trust_remote_code": False}
    return OmegaConf.create(usual | fixed | values)


def adapter(base: Path, folder: Path, **options: Any) -> Path:
    """An adapter of the base that peft has written, with these options."""
    values = {"r": RANK, "lora_alpha": ALPHA, "target_modules": ["q_proj", "up_proj"], "task_type": "CAUSAL_LM"}
    model = tiny_model().float()
    get_peft_model(model, LoraConfig(**(values | options))).save_pretrained(folder)
    return folder


UNUSUAL: list[dict[str, Any]] = [
    {"use_rslora": True},
    {"use_dora": True},
    {"modules_to_save": ["lm_head"]},
    {"rank_pattern": {"q_proj": 2}},
    {"init_lora_weights": "pissa"},
    {"layer_replication": [[0, 1], [0, 1]]},
]


@pytest.mark.parametrize("options", [{}, {"lora_dropout": 0.1}, {"layers_to_transform": [0]}])
def test_plain_lora_may_be_the_start(base: Path, tmp_path: Path, options: dict[str, Any]) -> None:
    folder = adapter(base, tmp_path, **options)
    check_adapter(model_section(base, lora_adapter_path=str(folder)), "model")
    assert Checkpoint.find(str(folder), str(base)).adapter == folder


@pytest.mark.parametrize("options", UNUSUAL)
def test_an_option_that_changes_the_answers_is_refused_by_name(
    base: Path, tmp_path: Path, options: dict[str, Any]
) -> None:
    folder = adapter(base, tmp_path, **options)
    (name,) = options
    with pytest.raises(BadConfig, match=rf"^model.lora_adapter_path={folder}: .*{name}=.*merge_and_unload"):
        check_adapter(model_section(base, lora_adapter_path=str(folder)), "model")
    if name == "use_rslora":  # vLLM divides by the root of the rank, as peft does
        assert Checkpoint.find(str(folder), str(base)).adapter == folder
    else:
        with pytest.raises(BadCheckpoint, match=rf"{name}=.*merge_and_unload"):
            Checkpoint.find(str(folder), str(base))


def test_another_rank_or_alpha_than_the_run_s_is_refused(base: Path, tmp_path: Path) -> None:
    folder = adapter(base, tmp_path, r=2, lora_alpha=6)
    with pytest.raises(BadConfig, match="Set model.lora_rank=2 and model.lora_alpha=6"):
        check_adapter(model_section(base, lora_adapter_path=str(folder)), "model")


@pytest.mark.parametrize(
    "values, said",
    [
        ({"target_modules": ["embed_tokens"]}, r"would adapt model.embed_tokens and"),
        ({"target_modules": ["lm_head", "q_proj"]}, r"would adapt lm_head and"),
        ({"target_modules": ["q_proj", "q_prj"]}, r"'q_prj' matches no linear layer .* It has down_proj, "),
        ({"exclude_modules": ".*"}, r"all-linear: "),
        ({"lora_adapter_path": "nowhere"}, r"nowhere: this is not a LoRA adapter"),
    ],
)
def test_layers_that_cannot_be_merged_and_names_that_match_nothing_are_refused(
    tmp_path: Path, values: dict[str, Any], said: str
) -> None:
    tied = tiny_model().float()
    tied.config.tie_word_embeddings = True
    tied.tie_weights()
    tied.save_pretrained(tmp_path)
    with pytest.raises(BadConfig, match=said):
        check_adapter(model_section(tmp_path, **values), "model")


def test_experts_are_refused_with_the_layers_that_can_be_adapted(tmp_path: Path) -> None:
    sizes = {"hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "vocab_size": 64}
    experts = {"num_experts": 4, "moe_intermediate_size": 16, "num_hidden_layers": 2}
    Qwen3MoeConfig(**sizes, **experts, architectures=["Qwen3MoeForCausalLM"]).save_pretrained(tmp_path)
    layers = ["k_proj", "o_proj", "q_proj", "v_proj"]
    with pytest.raises(BadConfig, match=rf"mlp\.experts and .*Set model\.target_modules=\[{','.join(layers)}\]"):
        check_adapter(model_section(tmp_path), "model")
    assert check_adapter(model_section(tmp_path, target_modules=layers), "model") == layers


def test_an_own_head_can_be_adapted_and_a_full_training_needs_no_adapter(base: Path) -> None:
    check_adapter(model_section(base, target_modules=["lm_head"]), "model")
    check_adapter(model_section(base, lora_rank=0, target_modules=["nothing"]), "model")
