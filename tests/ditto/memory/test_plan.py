"""A run that cannot fit ends before it starts, and the override that it is told does fit when it is applied.

Without a GPU, a config's open values follow from the model and the free memory.
"""

import copy
import re
import runpy
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from omegaconf import DictConfig, OmegaConf
from peft import LoraConfig, get_peft_model
from transformers import LlamaConfig, MambaConfig, Qwen3MoeConfig

from ditto.launching.compose import load_config
from ditto.memory import cpu
from ditto.memory.estimate import GIB, Memory, build_on_meta, read_model
from ditto.memory.plan import ASSUMED_GIB, check_gpu, check_rl, gpu_size, model_of, rl_plan
from ditto.settings import BadConfig
from tests.ditto.memory.qwen3 import saved, text, vision_language

ROOT = Path(__file__).resolve().parents[3]
ACTOR, ROLLOUT, MODEL = (f"actor_rollout_ref.{part}" for part in ("actor", "rollout", "model"))
BUCKET, TOKENS = f"{ROLLOUT}.checkpoint_engine.update_weights_bucket_megabytes", f"{ACTOR}.ppo_max_token_len_per_gpu"
CACHE, CHECKPOINTING = cpu.CACHE_KEY, f"{MODEL}.enable_gradient_checkpointing"
SMALL = {"hidden_size": 64, "num_hidden_layers": 2, "vocab_size": 512}
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "num_attention_heads": 4}


@cache
def recipe() -> DictConfig:
    """The paper's recipe on a GPU node, composed once: Hydra takes a second."""
    words = ["--config-dir", str(ROOT / "recipe/ditto/config"), "--config-name", "ditto", "platform=gpu"]
    return load_config([*words, "data.train_files=[a.parquet]", "data.val_files=[b.parquet]"])


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Configs of models: Qwen3 of three sizes, SmolLM2-135M, a state-space model and a mixture of experts."""
    folder = tmp_path_factory.mktemp("models")
    heads = {"num_attention_heads": 9, "num_key_value_heads": 3, "hidden_size": 576, "intermediate_size": 1536}
    context = {"vocab_size": 49152, "max_position_embeddings": 8192, "tie_word_embeddings": True}
    made = {
        "8B": text("8B"),
        "32B": text("32B"),
        "qwen": text("0.6B", max_position_embeddings=40960),
        "smol": LlamaConfig(architectures=["LlamaForCausalLM"], num_hidden_layers=30, **heads, **context),
        "mamba": MambaConfig(**SMALL),
        "mixture": Qwen3MoeConfig(**SMALL, **EXPERTS, num_key_value_heads=2),
    }
    for name, config in made.items():
        saved(config, folder / name)
    return folder


def changed(models: Path, size: str, *overrides: str) -> DictConfig:
    """The recipe with some values changed; only keys that exist can be."""
    config = copy.deepcopy(recipe())
    for key, value in (word.split("=") for word in [f"{MODEL}.path={models / size}", *overrides]):
        OmegaConf.update(config, key, yaml.safe_load(value), force_add=False)
    return config


def phases(models: Path, size: str, *overrides: str) -> dict[str, Memory]:
    """The memory of each phase, by the first word of its name."""
    config = changed(models, size, *overrides)
    plan = rl_plan(config, model_of(config.actor_rollout_ref.model), gpu_size(config))
    return {name.split(" ")[0]: memory for name, memory in plan.phases.items()}


@pytest.mark.parametrize(
    ("config", "published"),
    [(text("0.6B"), 596_049_920), (text("8B"), 8_190_735_360), (vision_language(), 8_767_123_696)],
)
def test_weights_are_those_of_the_model_cards_and_adapters_those_of_peft(config: Any, published: int) -> None:
    model = read_model(config, "model", lora_rank=8)
    assert model.weights == published
    peft = get_peft_model(build_on_meta(config), LoraConfig(task_type="CAUSAL_LM", r=8, target_modules="all-linear"))
    assert model.adapter == sum(weight.numel() for weight in peft.parameters() if weight.requires_grad)


def test_the_recipe_fits_on_eight_cards_of_80_gb(models: Path) -> None:
    shown = "\n".join(check_rl(changed(models, "8B", f"memory.gpu_gib={ASSUMED_GIB}")))
    assert "8.19 B weights, 0.09 B of an adapter (LoRA) trained, on 8 GPUs of 79.2 GiB" in shown
    for part in ("rollout", "log-probs", "update", "weight sync", "keys and values", "fits: "):
        assert part in shown, shown


# what does not fit -> (model, overrides, the key that the message must name)
TOO_LARGE: dict[str, tuple[str, list[str], str]] = {
    "micro-batch": ("8B", [f"{TOKENS}=262144"], f"{TOKENS}=1"),
    "model wider than a GPU": ("32B", [], f"{ROLLOUT}.tensor_model_parallel_size=2"),
    "weights on the host": (
        "8B",
        [f"{MODEL}.lora_rank=0", "trainer.n_gpus_per_node=1"],
        f"{ACTOR}.fsdp_config.offload_policy=true",
    ),
}


@pytest.mark.parametrize("case", TOO_LARGE)
def test_the_named_override_fits(case: str, models: Path) -> None:
    size, overrides, key = TOO_LARGE[case]
    words = [*overrides, "memory.gpu_gib=79.2"]
    with pytest.raises(BadConfig, match="does not fit") as raised:
        check_rl(changed(models, size, *words))
    advice = re.search(r"This fits: (.*?)\. If your GPUs", str(raised.value))
    assert advice and key in advice[1], raised.value
    check_rl(changed(models, size, *words, *advice[1].split()))


def test_a_gpu_config_on_a_machine_without_a_gpu_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RAY_ADDRESS", "VERL_PLATFORM"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(BadConfig, match="trainer.device=cuda.*no GPU.*platform=cpu"):
        check_gpu(recipe())
    monkeypatch.setenv("RAY_ADDRESS", "head:6379")  # the driver of a cluster
    check_gpu(recipe())


def test_the_page_is_the_one_that_the_code_makes() -> None:
    page = runpy.run_path(str(ROOT / "docs" / "sizing.py"))["page"]()
    assert (ROOT / "docs" / "sizing.md").read_text(encoding="utf-8") == page, "run: python docs/sizing.py"


def test_numbers_follow_the_config(models: Path) -> None:
    """Number formats, adapters, separate devices and teachers change what they should."""
    base, adapter, stays = 8_190_735_360, 87_293_952, f"{ACTOR}.fsdp_config.param_offload=false"
    lora, rounded = phases(models, "8B"), phases(models, "8B", f"{ACTOR}.fsdp_config.model_dtype=bfloat16")
    fewer = lora["update"].weights - rounded["update"].weights
    assert fewer == pytest.approx(2 * adapter / 8, rel=1e-6), "the frozen base is in bfloat16 in either case"
    here = phases(models, "8B", stays)
    assert here["rollout"].total - lora["rollout"].total == pytest.approx((2 * base + 4 * adapter) / 8, rel=1e-6)
    apart = phases(models, "8B", stays, "trainer.v1.trainer_mode=ditto_separate_async")
    assert apart["rollout"].weights == 0, "a GPU that samples"
    full = [stays, f"{MODEL}.lora_rank=0", "algorithm.objective=sdpo_logits"]
    ema, live = (phases(models, "8B", *full, f"algorithm.sdpo.teacher={kind}") for kind in ("ema", "live"))
    assert ema["rollout"].weights - live["rollout"].weights == 4 * base // 8
    assert live["update"].optimizer == 8 * base // 8


def test_a_checkpoint_that_teaches_is_loaded_whole_beside_the_student(models: Path) -> None:
    """The message names the phase in which there is not enough."""
    config = changed(models, "8B", "algorithm.objective=on_policy_distillation_logits", "memory.gpu_gib=60")
    with pytest.raises(BadConfig, match="teachers needs"):
        check_rl(config, [str(models / "32B")])


def on_cpu(model: Path, *overrides: str) -> DictConfig:
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
    made = on_cpu(models / "smol", *short)
    values = fitted(monkeypatch, 22, made)
    assert values[BUCKET] == 108  # 49,152 x 576 x 4 bytes
    assert values[CACHE] == 8 * (1280 + 128) * 2 * 30 * 3 * 64 * 4  # sessions, tokens, keys and values
    assert values[TOKENS] >= 1280 and values[CHECKPOINTING] is False
    for section in ("rollout", "ref"):
        assert made.actor_rollout_ref[section].log_prob_max_token_len_per_gpu == values[TOKENS]


def test_long_sequences_are_trained_with_checkpointing_and_given_values_stay(
    models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = fitted(monkeypatch, 16, on_cpu(models / "smol"))
    assert values[CHECKPOINTING] is True and values[TOKENS] >= 8128
    given = {BUCKET: 200, CACHE: 2**30, TOKENS: 9000, CHECKPOINTING: True}
    made = on_cpu(models / "smol", *(f"{key}={str(value).lower()}" for key, value in given.items()))
    assert fitted(monkeypatch, 22, made) == given
    docker = SimpleNamespace(free=64 << 20)  # its default
    monkeypatch.setattr(cpu.shutil, "disk_usage", lambda _path: docker)
    with pytest.raises(BadConfig, match="shm-size"):
        fitted(monkeypatch, 22, made)


@pytest.mark.parametrize("family", ["mamba", "mixture"])
def test_other_families_than_dense_decoders_are_planned_too(
    family: str, models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert fitted(monkeypatch, 22, on_cpu(models / family))[BUCKET] == cpu.LEAST_BUCKET


@pytest.mark.parametrize(
    ("model", "overrides", "lengths"),
    [
        ("smol", [], (3840, 448, 3840)),
        ("smol", ["data.max_response_length=1024"], (6336, 768, 1024)),
        ("smol", ["data.max_prompt_length=9000"], (9000, 1024, 8192)),  # refused by the check of the model's context
        ("qwen", [], (8192, 1024, 8192)),  # the paper's
        ("not/there", [], (8192, 1024, 8192)),
    ],
)
def test_open_lengths_share_the_models_context(
    model: str, overrides: list[str], lengths: tuple[int, int, int], models: Path
) -> None:
    data = on_cpu(models / model, *overrides).data
    assert (data.max_prompt_length, data.max_feedback_length, data.max_response_length) == lengths
