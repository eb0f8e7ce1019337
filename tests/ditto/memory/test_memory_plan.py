"""A run that cannot fit ends before it starts, and the override that it is told does fit when it is applied."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
import yaml
from omegaconf import DictConfig, OmegaConf

from ditto.launching.compose import load_config
from ditto.memory.model_shape import GIB
from ditto.memory.plan import ASSUMED_GIB, MemoryPlan, plan
from ditto.memory.remedy import overrides
from ditto.memory.setup import KEYS
from ditto.settings import BadConfig
from tests.ditto.memory.qwen3 import saved, text, vision_language

ROOT = Path(__file__).resolve().parents[3]
ACTOR, ROLLOUT, MODEL = (f"actor_rollout_ref.{part}" for part in ("actor", "rollout", "model"))


@cache
def recipe() -> DictConfig:
    """The paper's recipe on a GPU node, composed once: Hydra takes a second."""
    return composed()


def composed(*overrides: str) -> DictConfig:
    words = ["--config-dir", str(ROOT / "recipe/ditto/config"), "--config-name", "ditto", "platform=gpu"]
    return load_config([*words, "data.train_files=[a.parquet]", "data.val_files=[b.parquet]", *overrides])


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    for size in ("0.6B", "8B", "32B"):
        saved(text(size), folder / size)
    saved(vision_language(), folder / "VL")
    return folder


def planned(models: Path, size: str, *overrides: str, teachers: Sequence[str] = ()) -> MemoryPlan:
    """The plan with some values changed; only keys that exist can be. `teachers` are sizes."""
    config = recipe().copy()
    for key, value in (word.split("=") for word in [f"{MODEL}.path={models / size}", *overrides]):
        OmegaConf.update(config, key, yaml.safe_load(value), force_add=False)
    return plan(config, [str(models / teacher) for teacher in teachers])


def test_the_recipe_fits_on_eight_cards_of_80_gb(models: Path) -> None:
    made = planned(models, "VL", f"memory.gpu_gib={ASSUMED_GIB}")
    made.check()
    shown = "\n".join(made.lines())
    assert "8.77 B weights, 0.09 B trained (LoRA of rank 32), on 8 GPUs of 79.2 GiB" in shown
    for part in ("rollout", "log-probs", "update", "weight sync", "keys and values", "host: offloaded", "fits: "):
        assert part in shown, shown


# what does not fit -> (model, overrides, the key that the message must name)
TOO_LARGE: dict[str, tuple[str, list[str], str]] = {
    "micro-batch": ("VL", [f"{ACTOR}.ppo_max_token_len_per_gpu=262144"], f"{ACTOR}.ppo_max_token_len_per_gpu=1"),
    "full logits": ("8B", [f"{MODEL}.use_fused_kernels=false"], f"{MODEL}.use_fused_kernels=true"),
    "no checkpointing": (
        "8B",
        [f"{MODEL}.enable_gradient_checkpointing=false"],
        f"{MODEL}.enable_gradient_checkpointing=true",
    ),
    "vLLM awake in the update": ("8B", [f"{ROLLOUT}.free_cache_engine=false"], f"{ROLLOUT}.free_cache_engine=true"),
    "nothing offloaded": (
        "8B",
        [
            f"{MODEL}.lora_rank=0",
            f"{ACTOR}.fsdp_config.param_offload=false",
            f"{ACTOR}.fsdp_config.optimizer_offload=false",
            "trainer.n_gpus_per_node=4",
        ],
        f"{ACTOR}.fsdp_config.param_offload=true",
    ),
    "no room for one sequence": ("8B", [f"{ROLLOUT}.gpu_memory_utilization=0.2"], f"{ROLLOUT}.gpu_memory_utilization="),
    "model wider than a GPU": ("32B", [], f"{ROLLOUT}.tensor_model_parallel_size=2"),
    "small cards": ("8B", ["memory.gpu_gib=39.4"], f"{ACTOR}.ppo_max_token_len_per_gpu="),
    "one GPU": ("32B", ["trainer.n_gpus_per_node=1"], "trainer.n_gpus_per_node="),
}


@pytest.mark.parametrize("case", TOO_LARGE)
def test_the_named_override_fits(case: str, models: Path) -> None:
    size, overrides, key = TOO_LARGE[case]
    words = [*overrides] if any("gpu_gib" in word for word in overrides) else [*overrides, "memory.gpu_gib=79.2"]
    with pytest.raises(BadConfig) as raised:
        planned(models, size, *words).check()
    message = str(raised.value)
    assert "does not fit" in message and len(message.splitlines()) == 1
    advice = re.search(r"This fits: (.*?)\. If your GPUs", message)
    assert advice and key in advice[1], message
    planned(models, size, *words, *advice[1].split()).check()


def test_hydra_takes_the_named_override(models: Path) -> None:
    """As on the command line: what follows from the key by interpolation follows."""
    words = [f"{MODEL}.path={models / 'VL'}", f"{ACTOR}.ppo_max_token_len_per_gpu=262144", "memory.gpu_gib=79.2"]
    change = plan(composed(*words)).remedy()
    assert change
    advice = overrides(change, KEYS)
    fitting = plan(composed(*words, *advice))
    fitting.check()
    assert fitting.setup.tokens == fitting.setup.log_prob_tokens < 262144


def test_what_no_override_can_fit(models: Path) -> None:
    with pytest.raises(BadConfig, match="No change .* use larger GPUs, more nodes, LoRA"):
        planned(models, "32B", "memory.gpu_gib=7", f"{MODEL}.lora_rank=0").check()


def test_the_host_is_checked_where_it_trains(models: Path) -> None:
    """Elsewhere a host that is too small is a remark."""
    made = planned(models, "VL", "memory.gpu_gib=79.2")
    small = replace(made, machine=replace(made.machine, host_bytes=64 * GIB, trains=False))
    small.check()
    assert "this machine has 64" in "\n".join(small.lines())
    with pytest.raises(BadConfig, match="GiB of host memory on each node, but this one has 64"):
        replace(made, machine=replace(made.machine, host_bytes=64 * GIB, trains=True)).check()


def test_numbers_follow_the_config(models: Path) -> None:
    """Number formats, offloading and adapters change what they should, and nothing else."""
    base, adapter = 8_190_735_360, 87_293_952
    lora = planned(models, "8B")
    rounded = planned(models, "8B", f"{ACTOR}.fsdp_config.model_dtype=bfloat16")
    fewer = lora.phases[2].memory.weights - rounded.phases[2].memory.weights
    assert fewer == pytest.approx(2 * adapter / 8, rel=1e-6), "the frozen base is in bfloat16 in either case"
    assert lora.engine == rounded.engine and lora.host.vllm == rounded.host.vllm > 120 * GIB
    full = planned(models, "8B", f"{MODEL}.lora_rank=0")
    assert full.host.vllm == 0, "vLLM throws its weights away where a sync brings all of them"
    assert full.phases[2].memory.optimizer == 8 * base // 8
    stays = planned(models, "8B", f"{ACTOR}.fsdp_config.param_offload=false")
    assert stays.phases[0].total - lora.phases[0].total == pytest.approx((2 * base + 4 * adapter) / 8, rel=1e-6)
    text_only, tower = (
        planned(models, "VL", f"{ROLLOUT}.engine_kwargs.vllm.language_model_only={word}").engine
        for word in ("true", "false")
    )
    assert tower.weights - text_only.weights == 2 * (8_767_123_696 - base)


def test_separate_devices_share_no_gpu_and_keep_two_copies_of_what_is_trained_on_the_host(models: Path) -> None:
    """pi_old of a step's later parts needs the weights of its beginning, while the live ones wait."""
    common = [f"{MODEL}.lora_rank=0", f"{ACTOR}.fsdp_config.param_offload=false"]
    together = planned(models, "8B", *common)
    apart = planned(models, "8B", *common, "trainer.v1.trainer_mode=ditto_separate_async")
    assert apart.host.offloaded - together.host.offloaded == pytest.approx(2 * 4 * 8_190_735_360, rel=1e-6)
    assert together.phases[0].memory.weights > 0 == apart.phases[0].memory.weights, "a GPU that samples"


def test_the_plan_counts_a_teacher_s_copy_where_it_is(models: Path) -> None:
    """On the GPU during the rollout, or on the host where parameters are offloaded; none for a live teacher."""
    sdpo = ["algorithm.objective=sdpo_logits", f"{MODEL}.lora_rank=0"]
    for offloaded in (False, True):
        offload = f"{ACTOR}.fsdp_config.param_offload={str(offloaded).lower()}"
        ema, live = (
            planned(models, "8B", *sdpo, offload, f"algorithm.sdpo.teacher={kind}") for kind in ("ema", "live")
        )
        copy_bytes = 4 * ema.shape.weights // 8  # float32, over 8 GPUs
        on_gpu = ema.phases[0].memory.weights - live.phases[0].memory.weights
        on_host = ema.host.offloaded - live.host.offloaded
        assert (on_gpu, on_host) == ((0, 8 * copy_bytes) if offloaded else (copy_bytes, 0))


def test_the_plan_counts_checkpoints_that_teach(models: Path) -> None:
    """Their weights in bfloat16 on the host, in pinned memory; a layer at a time on the GPU, beside the student."""
    taught = ["algorithm.objective=on_policy_distillation_logits"]
    alone, one, two = (planned(models, "8B", *taught, teachers=names) for names in ((), ("32B",), ("8B", "32B")))
    more = two.host.teachers - one.host.teachers
    assert 1 <= more / (2 * one.shape.weights) < 2  # the padding of pinned memory
    assert two.host.peak > one.host.peak > alone.host.peak
    phases = {phase.name: phase.memory for phase in two.phases}
    before = {phase.name: phase.memory for phase in alone.phases}
    assert phases.keys() - before.keys() == {"teachers"}
    assert phases["teachers"].weights > 2 * two.teachers[-1].weights  # loading: one GPU has the largest of them whole
    heads = sum(2 * teacher.embedding for teacher in two.teachers)
    assert phases["update"].weights - before["update"].weights == heads
    shown = "\n".join(two.lines())
    assert "32B: 32.76 B weights" in shown and ", teachers " in shown, shown


def test_a_teacher_that_is_too_large_to_load_is_refused(models: Path) -> None:
    overrides = ["algorithm.objective=on_policy_distillation", "memory.gpu_gib=60"]
    planned(models, "8B", *overrides, teachers=["8B"]).check()
    with pytest.raises(BadConfig, match="the teachers phase needs"):
        planned(models, "8B", *overrides, teachers=["32B"]).check()
