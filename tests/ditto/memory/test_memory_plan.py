"""A run that cannot fit ends before it starts, and the override that it is told does fit when it is applied."""

import copy
import re
import runpy
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import pytest
import yaml
from omegaconf import DictConfig, OmegaConf

from ditto.launching.compose import load_config
from ditto.memory.model_shape import GIB
from ditto.memory.plan import ASSUMED_GIB, MemoryPlan, check_gpu, plan
from ditto.settings import BadConfig
from tests.ditto.memory.qwen3 import saved, text, vision_language

ROOT = Path(__file__).resolve().parents[3]
ACTOR, ROLLOUT, MODEL = (f"actor_rollout_ref.{part}" for part in ("actor", "rollout", "model"))


@cache
def recipe() -> DictConfig:
    """The paper's recipe on a GPU node, composed once: Hydra takes a second."""
    words = ["--config-dir", str(ROOT / "recipe/ditto/config"), "--config-name", "ditto", "platform=gpu"]
    return load_config([*words, "data.train_files=[a.parquet]", "data.val_files=[b.parquet]"])


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    for size in ("8B", "32B"):
        saved(text(size), folder / size)
    saved(vision_language(), folder / "VL")
    return folder


def planned(models: Path, size: str, *overrides: str, teachers: Sequence[str] = ()) -> MemoryPlan:
    """The plan with some values changed; only keys that exist can be. `teachers` are sizes."""
    config = copy.deepcopy(recipe())
    for key, value in (word.split("=") for word in [f"{MODEL}.path={models / size}", *overrides]):
        OmegaConf.update(config, key, yaml.safe_load(value), force_add=False)
    return plan(config, [str(models / teacher) for teacher in teachers])


def test_the_recipe_fits_on_eight_cards_of_80_gb(models: Path) -> None:
    made = planned(models, "VL", f"memory.gpu_gib={ASSUMED_GIB}")
    made.check()
    shown = "\n".join(made.lines())
    assert "8.77 B weights, 0.09 B trained (LoRA of rank 32), on 8 GPUs of 79.2 GiB" in shown
    for part in ("rollout", "log-probs", "update", "weight sync", "keys and values", "offloaded", "fits: "):
        assert part in shown, shown


# what does not fit -> (model, overrides, the key that the message must name)
TOO_LARGE: dict[str, tuple[str, list[str], str]] = {
    "micro-batch": ("VL", [f"{ACTOR}.ppo_max_token_len_per_gpu=262144"], f"{ACTOR}.ppo_max_token_len_per_gpu=1"),
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
    with pytest.raises(BadConfig) as raised:
        planned(models, size, *words).check()
    message = str(raised.value)
    assert "does not fit" in message and len(message.splitlines()) == 1
    advice = re.search(r"This fits: (.*?)\. If your GPUs", message)
    assert advice and key in advice[1], message
    fitting = planned(models, size, *words, *advice[1].split())
    fitting.check()
    assert fitting.config.actor_rollout_ref.rollout.log_prob_max_token_len_per_gpu <= 131072


def test_a_gpu_config_on_a_machine_without_a_gpu_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RAY_ADDRESS", "VERL_PLATFORM"):
        monkeypatch.delenv(name, raising=False)
    config = recipe()
    with pytest.raises(BadConfig, match="trainer.device=cuda.*no GPU.*platform=cpu"):
        check_gpu(config)
    monkeypatch.setenv("RAY_ADDRESS", "head:6379")  # the driver of a cluster
    check_gpu(config)


def test_the_page_is_the_one_that_the_code_makes() -> None:
    page = runpy.run_path(str(ROOT / "docs" / "sizing.py"))["page"]()
    assert (ROOT / "docs" / "sizing.md").read_text(encoding="utf-8") == page, "run: python docs/sizing.py"


def test_numbers_follow_the_config(models: Path) -> None:
    """Number formats, offloading and adapters change what they should, and nothing else."""
    base, adapter = 8_190_735_360, 87_293_952
    lora = planned(models, "8B")
    rounded = planned(models, "8B", f"{ACTOR}.fsdp_config.model_dtype=bfloat16")
    fewer = lora.phases[2].memory.weights - rounded.phases[2].memory.weights
    assert fewer == pytest.approx(2 * adapter / 8, rel=1e-6), "the frozen base is in bfloat16 in either case"
    asleep = "weights of sleeping vLLM"
    assert lora.engine == rounded.engine and lora.host[asleep] == rounded.host[asleep] > 120 * GIB
    full = planned(models, "8B", f"{MODEL}.lora_rank=0")
    assert full.host[asleep] == 0, "vLLM throws its weights away where a sync brings all of them"
    assert full.phases[2].memory.optimizer == 8 * base // 8
    stays = planned(models, "8B", f"{ACTOR}.fsdp_config.param_offload=false")
    assert stays.phases[0].total - lora.phases[0].total == pytest.approx((2 * base + 4 * adapter) / 8, rel=1e-6)


def test_separate_devices_share_no_gpu_and_keep_two_copies_of_what_is_trained_on_the_host(models: Path) -> None:
    """pi_old of a step's later parts needs the weights of its beginning, while the live ones wait."""
    common = [f"{MODEL}.lora_rank=0", f"{ACTOR}.fsdp_config.param_offload=false"]
    together = planned(models, "8B", *common)
    apart = planned(models, "8B", *common, "trainer.v1.trainer_mode=ditto_separate_async")
    assert apart.host["offloaded"] - together.host["offloaded"] == pytest.approx(2 * 4 * 8_190_735_360, rel=1e-6)
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
        on_host = ema.host["offloaded"] - live.host["offloaded"]
        assert (on_gpu, on_host) == ((0, 8 * copy_bytes) if offloaded else (copy_bytes, 0))


def test_the_plan_counts_checkpoints_that_teach(models: Path) -> None:
    """Their weights in bfloat16 on the host, in pinned memory; one is loaded whole on a GPU, beside the student."""
    taught = ["algorithm.objective=on_policy_distillation_logits"]
    alone, one, two = (planned(models, "8B", *taught, teachers=names) for names in ((), ("32B",), ("8B", "32B")))
    more = two.host["teachers"] - one.host["teachers"]
    assert 1 <= more / (2 * one.shape.weights) < 2  # the padding of pinned memory
    assert two.host_peak > one.host_peak > alone.host_peak
    phases = {phase.name: phase.memory for phase in two.phases}
    before = {phase.name: phase.memory for phase in alone.phases}
    assert phases.keys() - before.keys() == {"teachers"}
    assert phases["teachers"].weights > 2 * two.teachers[-1].weights
    assert "32B: 32.76 B weights" in "\n".join(two.lines())
    with pytest.raises(BadConfig, match="teachers needs"):
        planned(models, "8B", *taught, "memory.gpu_gib=60", teachers=["32B"]).check()
