"""What the preflight says of attention: the layer that it runs, and each way in which one cannot run."""

from __future__ import annotations

import copy
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from omegaconf import DictConfig, OmegaConf
from transformers import AttentionInterface, AttentionMaskInterface, Qwen2_5_VLConfig, Qwen3Config
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from ditto.launching.compose import load_config
from ditto.model import attention
from ditto.model.attention_check import check_attention
from ditto.model.prefix_tree.attention import Branches, cascade
from ditto.model.prefix_tree.tree import Node
from ditto.settings import BadConfig
from sft.launch import config_of

MODEL = "actor_rollout_ref.model"
KEY = f"{MODEL}.override_config.attn_implementation"


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two configs of models; no weights, for none are needed."""
    folder = tmp_path_factory.mktemp("models")
    Qwen3Config(num_attention_heads=4, num_key_value_heads=2, head_dim=16).save_pretrained(folder / "qwen3")
    Qwen2_5_VLConfig().save_pretrained(folder / "qwen2_5_vl")
    return folder


@pytest.fixture(autouse=True)
def no_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)


@cache
def composed(platform: str) -> DictConfig:
    files = ["data.train_files=[a.parquet]", "data.val_files=[b.parquet]", f"{MODEL}.path=unset"]
    return load_config([f"platform={platform}", *files])


def config(models: Path, platform: str, changed: dict[str, Any] | None = None, model: str = "qwen3") -> DictConfig:
    values = {f"{MODEL}.path": str(models / model), **(changed or {})}
    one = copy.deepcopy(composed(platform))
    for key, value in values.items():
        OmegaConf.update(one, key, value, force_add=True)
    return one


def mixes(module: Any, query: Any, key: Any, value: Any, attention_mask: Any, **kwargs: Any) -> Any:
    """As sdpa would be without a mask: it looks across the borders of a pack."""
    return sdpa_attention_forward(module, query, key, value, None, scaling=kwargs["scaling"])


def old_gpu(*_args: Any, **_kwargs: Any) -> Any:
    raise RuntimeError("FlashAttention only supports Ampere GPUs or newer.")


def test_what_is_shipped_runs_on_a_cpu(models: Path) -> None:
    check_attention(config(models, "cpu"))
    check_attention(config(models, "cpu", {f"{MODEL}.use_remove_padding": False, KEY: "sdpa"}))
    check_attention(config_of(["platform=cpu", f"model.path={models / 'qwen3'}"]))


# what -> (platform, overrides, model, what the message must name)
MISTAKES: dict[str, tuple[str, dict[str, Any], str, list[str]]] = {
    "verl's default": (
        "gpu",
        {KEY: "flash_attention_2"},
        "qwen3",
        [f"{KEY}=flash_attention_2", "flash_attn is not installed", f"{KEY}=packed"],
    ),
    "a GPU config on a machine without": ("gpu", {}, "qwen3", ["trainer.device=cuda", "no GPU", "platform=cpu"]),
    "an unknown name": ("cpu", {KEY: "pakced"}, "qwen3", [f"{KEY}=pakced", "not known", f"{MODEL}.external_lib"]),
    "a library that is not there": (
        "cpu",
        {f"{MODEL}.external_lib": "my_attention"},
        "qwen3",
        [f"{MODEL}.external_lib=my_attention", "No module named"],
    ),
    "verl's own attention": ("cpu", {}, "qwen2_5_vl", [f"{MODEL}.path", "qwen2_5_vl", "flash-attn is not installed"]),
    "attention across borders": (
        "cpu",
        {KEY: "mixes"},
        "qwen3",
        ["one sequence of a pack influences", f"{KEY}=packed"],
    ),
    "a GPU that is too old": ("cpu", {KEY: "old_gpu"}, "qwen3", ["Ampere", "trainer.device=cpu", f"{KEY}=packed"]),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_layer_that_cannot_run_is_one_paragraph(mistake: str, models: Path) -> None:
    for implementation in (mixes, old_gpu):
        AttentionInterface.register(implementation.__name__, implementation)
        AttentionMaskInterface.register(implementation.__name__, lambda *_args, **_kwargs: None)
    platform, changed, model, named = MISTAKES[mistake]
    with pytest.raises(BadConfig) as raised:
        check_attention(config(models, platform, changed, model))
    for part in named:
        assert part in str(raised.value), raised.value
    assert "\n" not in str(raised.value)


def test_a_kernel_that_computes_a_tree_wrongly_is_named(models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def alone(query: Any, key: Any, value: Any, branches: Branches, scaling: float | None) -> Any:
        """Every node sees itself alone."""
        roots = [Node(node.start, node.end, node.end, -1) for node in branches.nodes]
        return cascade(query, key, value, Branches(roots, branches.device), scaling)

    monkeypatch.setattr(attention, "cascade", alone)
    with pytest.raises(BadConfig, match="algorithm.prefix_tree=off"):
        check_attention(config(models, "cpu"))
    check_attention(config(models, "cpu", {"algorithm.prefix_tree": "off"}))
