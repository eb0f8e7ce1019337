"""Every shipped config composes, for both platforms, into what verl's own dataclasses and checks accept.

The GPU configs cannot run here; that verl takes every key and value of them can be known without a GPU.
"""

import copy
import re
from functools import cache
from pathlib import Path

import pytest
import yaml
from omegaconf import DictConfig, OmegaConf
from verl.trainer.ppo.utils import need_critic, need_reference_policy
from verl.utils.config import omega_conf_to_dataclass, validate_config

from ditto.config_checks.rl_rules import check_config, check_every_type
from ditto.launching.compose import CONFIG_DIR, load_config
from ditto.settings import Settings
from sft.launch import config_of
from soul.evaluate.run.vllm_server import ONE_PROCESS
from soul.judge.roles import paper_judge
from soul.suites.soul_v1 import PAPER

ROOT = Path(__file__).resolve().parents[3]
SHIPPED = {
    "trainer": CONFIG_DIR,
    "run_rl": CONFIG_DIR,
    "ditto": ROOT / "recipe" / "ditto" / "config",
    "demo": ROOT / "recipe" / "demo",
}
PLATFORMS = ("cpu", "gpu")


@cache
def composed(name: str, platform: str, *overrides: str) -> DictConfig:
    """Composed once: it takes a second."""
    files = ["data.train_files=[a.parquet]", "data.val_files=[b.parquet]", "actor_rollout_ref.model.path=somewhere"]
    return load_config(
        ["--config-dir", str(SHIPPED[name]), "--config-name", name, f"platform={platform}", *files, *overrides]
    )


def compose(name: str, platform: str, *overrides: str) -> DictConfig:
    return copy.deepcopy(composed(name, platform, *overrides))


@pytest.mark.parametrize("platform", PLATFORMS)
@pytest.mark.parametrize("name", SHIPPED)
def test_verl_accepts_it(name: str, platform: str) -> None:
    config = compose(name, platform)
    check_every_type(config)
    check_config(config, Settings.from_config(config))
    validate_config(config, need_reference_policy(config), need_critic(config))
    for section in ("actor", "rollout"):
        omega_conf_to_dataclass(config.actor_rollout_ref[section])
    assert config.trainer.device == {"cpu": "cpu", "gpu": "cuda"}[platform]
    assert Path(config.actor_rollout_ref.rollout.agent.agent_loop_config_path).is_file()


def test_the_recipe_is_the_papers() -> None:
    config = compose("ditto", "gpu")
    rollout, model, actor = (config.actor_rollout_ref[s] for s in ("rollout", "model", "actor"))
    assert Settings.from_config(config).objective.name == "ditto" and config.refine.when == "always"
    assert (model.lora_rank, model.lora_alpha, model.target_modules) == (32, 64, "all-linear")
    assert actor.optim.lr == 5e-6 and actor.optim.lr_scheduler_type == "constant"
    assert (config.data.train_batch_size, rollout.n) == (64, 8)
    assert (config.data.max_prompt_length, config.data.max_response_length) == (8192, 8192)
    assert config.trainer.total_training_steps == 100
    shipped = yaml.safe_load((ROOT / "recipe/ditto/config/ditto.yaml").read_text())
    assert shipped["actor_rollout_ref"]["model"]["path"] == "Qwen/Qwen3-VL-8B-Instruct"


def test_training_asks_the_papers_judges_unless_another_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JUDGE_MODEL_NAME", raising=False)
    for name in ("run_rl", "ditto"):
        gateway = Settings.from_config(compose(name, "gpu")).gateway
        judges = {task: (gateway.by_task.get(task) or gateway.judge).model for task in PAPER}
        assert judges == {task: paper_judge(task) for task in PAPER} and judges["coser"] == "gpt-5.4"
        assert gateway.judge.model == gateway.roles["environment"].model == "gpt-5-nano"
        assert not Settings.from_config(compose(name, "gpu", "judge.model=mine")).gateway.by_task


@pytest.mark.parametrize("plus", ["", "+"])
def test_settings_of_a_task_are_written_as_in_an_evaluation_without_a_plus_or_with_one(plus: str) -> None:
    words = [
        *("judge.by_task={sotopia: {model: m}}", "judge.by_task.coser.model=n"),
        *("data.mixture.weights={sotopia: 2}", "data.mixture.weights.hitom=0.5", "tasks.hitom.strict_answers=true"),
    ]
    settings = Settings.from_config(compose("trainer", "cpu", *(plus + word for word in words)))
    models = {task: endpoint.model for task, endpoint in settings.gateway.by_task.items()}
    assert models == {"sotopia": "m", "coser": "n"}
    assert settings.mixture.weights == {"sotopia": 2, "hitom": 0.5}
    assert settings.tasks["hitom"] == {"strict_answers": True}


def test_run_rl_has_the_original_scripts_values() -> None:
    config = compose("run_rl", "gpu")
    actor, rollout = config.actor_rollout_ref.actor, config.actor_rollout_ref.rollout
    assert Settings.from_config(config).objective.name == "grpo"
    assert (actor.clip_ratio_low, actor.clip_ratio_high, actor.clip_ratio_c) == (0.2, 0.28, 10.0)
    assert (actor.ppo_mini_batch_size, actor.ppo_epochs, actor.loss_agg_mode) == (16, 1, "token-mean")
    assert (rollout.gpu_memory_utilization, rollout.max_num_seqs, rollout.max_model_len) == (0.7, 1024, 17408)
    assert (config.trainer.test_freq, config.trainer.save_freq, config.trainer.total_training_steps) == (5, 50, 200)
    assert config.trainer.n_gpus_per_node == 8 and config.trainer.resume_mode == "auto"


def test_the_gpu_platform_is_what_docs_gpu_md_decides() -> None:
    config = compose("ditto", "gpu")
    model, actor, rollout = (config.actor_rollout_ref[s] for s in ("model", "actor", "rollout"))
    for engine in (actor.fsdp_config, compose_sft().engine):
        assert engine.model_dtype == "fp32" and not engine.get("mixed_precision"), "float32 weights, bfloat16 compute"
        assert not engine.use_no_sync_for_gradient_accumulation, "would keep every gradient whole on every GPU"
    assert config.actor_rollout_ref.ref.fsdp_config.model_dtype == "bfloat16"
    assert rollout.max_model_len <= actor.ppo_max_token_len_per_gpu == rollout.log_prob_max_token_len_per_gpu
    # The adapter is synced, onto a base that vLLM reads from disk; a merge would be rounded away.
    assert rollout.load_format == "safetensors" and not rollout.layered_summon and not model.lora.merge
    tower, language = (f"base_model.model.model.{name}" for name in ("visual.merger", "language_model.layers.0.mlp"))
    assert re.fullmatch(model.exclude_modules, f"{tower}.linear_fc1")
    assert not re.fullmatch(model.exclude_modules, f"{language}.up_proj")
    assert rollout.engine_kwargs.vllm.language_model_only and not config.data.apply_chat_template_kwargs.enable_thinking


def test_one_cpu_device_has_no_worker_process_of_its_own() -> None:
    for devices, executor in ((1, ONE_PROCESS[1]), (2, "mp")):
        config = compose("ditto", "cpu", f"actor_rollout_ref.rollout.tensor_model_parallel_size={devices}")
        assert config.actor_rollout_ref.rollout.engine_kwargs.vllm.distributed_executor_backend == executor


def compose_sft() -> DictConfig:
    return config_of(["platform=gpu"])


def test_an_override_wins_over_every_file() -> None:
    config = compose("ditto", "cpu", "actor_rollout_ref.rollout.max_num_seqs=7", "trainer.total_training_steps=3")
    assert config.actor_rollout_ref.rollout.max_num_seqs == 7 and config.trainer.total_training_steps == 3


def test_no_config_holds_a_key_or_unresolved_value() -> None:
    for name in SHIPPED:
        text = OmegaConf.to_yaml(compose(name, "gpu"))
        assert "sk-" not in text and "${" not in text
