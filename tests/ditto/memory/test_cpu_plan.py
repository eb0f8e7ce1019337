"""Without a GPU, a config's open values follow from the model and the free memory, and what cannot fit is refused."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from omegaconf import DictConfig, OmegaConf
from transformers import LlamaConfig, MambaConfig, Qwen3MoeConfig

from ditto.launching.compose import load_config
from ditto.memory import cpu
from ditto.memory.model_shape import GIB
from ditto.settings import BadConfig
from tests.ditto.memory.qwen3 import saved, text

ROLLOUT, ACTOR, MODEL = (f"actor_rollout_ref.{part}" for part in ("rollout", "actor", "model"))
BUCKET, TOKENS = f"{ROLLOUT}.checkpoint_engine.update_weights_bucket_megabytes", f"{ACTOR}.ppo_max_token_len_per_gpu"
CACHE, CHECKPOINTING = cpu.CACHE_KEY, f"{MODEL}.enable_gradient_checkpointing"


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """SmolLM2-135M, as its config describes it, and Qwen3-0.6B."""
    folder = tmp_path_factory.mktemp("models")
    heads = {"num_attention_heads": 9, "num_key_value_heads": 3, "hidden_size": 576, "intermediate_size": 1536}
    context = {"vocab_size": 49152, "max_position_embeddings": 8192, "tie_word_embeddings": True}
    saved(LlamaConfig(architectures=["LlamaForCausalLM"], num_hidden_layers=30, **heads, **context), folder / "smol")
    saved(text("0.6B", max_position_embeddings=40960), folder / "qwen")
    return folder


def config(model: Path, *overrides: str) -> DictConfig:
    small = ["data.train_batch_size=2", f"{ACTOR}.ppo_mini_batch_size=2", f"{ROLLOUT}.n=4"]
    files = ["data.train_files=[a]", "data.val_files=[b]", "platform=cpu", f"{MODEL}.path={model}"]
    return load_config([*files, *small, *overrides])


def fitted(monkeypatch: pytest.MonkeyPatch, free_gib: float, made: DictConfig) -> dict[str, Any]:
    monkeypatch.setattr(cpu, "free_memory", lambda: int(free_gib * GIB))
    cpu.fit(made)
    return {key: OmegaConf.select(made, key) for key in (BUCKET, CACHE, TOKENS, CHECKPOINTING)}


def test_a_bucket_holds_the_largest_tensor_and_the_cache_every_sequence(
    models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    short = ["data.max_prompt_length=1024", "data.max_feedback_length=128", "data.max_response_length=128"]
    made = config(models / "smol", *short)
    values = fitted(monkeypatch, 22, made)
    assert values[BUCKET] == 108  # 49,152 x 576 x 4 bytes
    assert values[CACHE] == 8 * (1280 + 128) * 2 * 30 * 3 * 64 * 4  # sessions, tokens, keys and values
    assert values[TOKENS] >= 1280 and values[CHECKPOINTING] is False
    for section in ("rollout", "ref"):
        assert made.actor_rollout_ref[section].log_prob_max_token_len_per_gpu == values[TOKENS]


def test_long_sequences_are_trained_with_checkpointing(models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    values = fitted(monkeypatch, 16, config(models / "smol"))
    assert values[CHECKPOINTING] is True and values[TOKENS] >= 8128


def test_given_values_stay(models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = {BUCKET: 200, CACHE: 2**30, TOKENS: 9000, CHECKPOINTING: True}
    made = config(models / "smol", *(f"{key}={str(value).lower()}" for key, value in given.items()))
    assert fitted(monkeypatch, 22, made) == given


def test_a_small_shared_memory_is_named(models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    docker = SimpleNamespace(free=64 << 20)  # its default
    monkeypatch.setattr(cpu.shutil, "disk_usage", lambda _path: docker)
    with pytest.raises(BadConfig, match="shm-size"):
        fitted(monkeypatch, 22, config(models / "smol"))


@pytest.mark.parametrize("family", ["mamba", "mixture"])
def test_other_families_than_dense_decoders_are_planned_too(
    family: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = {"hidden_size": 64, "num_hidden_layers": 2, "vocab_size": 512}
    experts = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "num_attention_heads": 4}
    made = MambaConfig(**small) if family == "mamba" else Qwen3MoeConfig(**small, **experts, num_key_value_heads=2)
    assert fitted(monkeypatch, 22, config(saved(made, tmp_path / "model")))[BUCKET] == cpu.LEAST_BUCKET


@pytest.mark.parametrize(
    ("overrides", "lengths"),
    [
        ([], (3840, 448, 3840)),
        (["data.max_response_length=1024"], (6336, 768, 1024)),
        (["data.max_prompt_length=1024", "data.max_response_length=256"], (1024, 1024, 256)),
        (["data.max_prompt_length=9000"], (9000, 1024, 8192)),  # refused by the check of the model's context
    ],
)
def test_open_lengths_share_the_models_context(
    overrides: list[str], lengths: tuple[int, int, int], models: Path
) -> None:
    data = config(models / "smol", *overrides).data
    assert (data.max_prompt_length, data.max_feedback_length, data.max_response_length) == lengths


@pytest.mark.parametrize("model", ["qwen", "not/there"])
def test_a_long_context_leaves_the_papers_lengths(model: str, models: Path) -> None:
    made = config(models / model)
    assert made.actor_rollout_ref.rollout.max_model_len == 8192 + 1024 + 8192
