"""Every recipe becomes arguments that verl's dataclasses and vLLM's own parser and engine config accept, on a GPU.

verl builds the command line of its vLLM server itself (vLLMHttpServer.launch_server); here only the start is left out.
"""

import argparse
import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from omegaconf import DictConfig

from ditto.launching.compose import load_config
from recipe.demo.tiny_model import build
from tests.ditto.config_checks.test_configs import ROOT, SHIPPED
from tests.e2e.test_sft import vision_language_model

WORDS = ["a word or two", "of which the tokenizer is made"] * 8
SECTIONS_OF_SFT = ("model", "engine", "optim", "checkpoint")  # what verl's SFT trainer converts


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Tiny models with the architectures of the recipes, and their room for positions."""
    folder = tmp_path_factory.mktemp("models")
    text = build(folder / "text", WORDS)
    made = {"text": text, "vision": vision_language_model(text, folder / "vision")}
    for path in made.values():
        config = json.loads((path / "config.json").read_text())
        config.get("text_config", config)["max_position_embeddings"] = 40960
        (path / "config.json").write_text(json.dumps(config))
    return made


def compose(recipe: str, model: Path, *overrides: str) -> DictConfig:
    files = ["data.train_files=[a.parquet]", "data.val_files=[b.parquet]"]
    words = ["platform=gpu", f"actor_rollout_ref.model.path={model}", *files, *overrides]
    return load_config(["--config-dir", str(SHIPPED[recipe]), "--config-name", recipe, *words])


def server_of(config: DictConfig) -> tuple[Any, argparse.Namespace]:
    """verl's server as far as the parsed command line of vLLM."""
    from verl.workers.rollout.replica import RolloutMode
    from verl.workers.rollout.vllm_rollout.vllm_async_server import vLLMHttpServer

    class Parsed(Exception):
        pass

    class Server(vLLMHttpServer):
        async def run_server(self, args: argparse.Namespace) -> None:
            raise Parsed(args)

        def _should_profile(self) -> bool:
            return False

    server = object.__new__(Server)  # its __init__ wants Ray
    server.config = server._init_config(config.actor_rollout_ref.rollout)
    server.model_config = server._init_model_config(config.actor_rollout_ref.model)
    server._validate_configs()
    server.rollout_mode = RolloutMode.HYBRID
    server.node_rank = server.replica_rank = 0
    server.nnodes, server.gpus_per_node, server.workers = 1, 8, [None]
    server._disaggregation_role = "null"
    with pytest.raises(Parsed) as parsed:
        asyncio.run(server.launch_server())
    return server, parsed.value.args[0]


@pytest.mark.parametrize("model", ["text", "vision"])
@pytest.mark.parametrize("recipe", SHIPPED)
def test_vllm_takes_what_verl_makes_of_a_recipe(recipe: str, model: str, models: dict[str, Path], h100: None) -> None:
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.usage.usage_lib import UsageContext

    config = compose(recipe, models[model])
    server, arguments = server_of(config)
    rollout, lora_rank = config.actor_rollout_ref.rollout, config.actor_rollout_ref.model.lora_rank
    engine = AsyncEngineArgs.from_cli_args(arguments).create_engine_config(UsageContext.OPENAI_API_SERVER)
    assert engine.model_config.max_model_len == rollout.max_model_len
    assert engine.cache_config.gpu_memory_utilization == rollout.gpu_memory_utilization
    assert engine.scheduler_config.max_num_batched_tokens == rollout.max_num_batched_tokens
    assert engine.model_config.logprobs_mode == "processed_logprobs"
    assert engine.model_config.enable_sleep_mode and engine.model_config.enable_cumem_allocator
    assert (engine.lora_config.max_lora_rank if engine.lora_config else 0) == lora_rank
    assert server._resolve_sleep_level() == (1 if lora_rank else 2)
    assert engine.parallel_config.worker_extension_cls.endswith("vLLMColocateWorkerExtension")
    assert engine.use_v2_model_runner, "vLLM 0.28 runs dense models with its second model runner"


@pytest.mark.parametrize("recipe", SHIPPED)
def test_verl_takes_every_section(recipe: str, models: dict[str, Path]) -> None:
    from verl.trainer.config import CheckpointConfig
    from verl.utils.config import omega_conf_to_dataclass

    config = compose(recipe, models["text"])
    for section in ("actor", "rollout", "model"):
        omega_conf_to_dataclass(config.actor_rollout_ref[section])
    assert isinstance(omega_conf_to_dataclass(config.actor_rollout_ref.actor.checkpoint), CheckpointConfig)


def test_verl_takes_every_section_of_sft(models: dict[str, Path]) -> None:
    from verl.utils.config import omega_conf_to_dataclass

    config = load_config(
        [
            "--config-dir",
            str(ROOT / "sft/config"),
            "--config-name",
            "sft",
            "platform=gpu",
            f"model.path={models['text']}",
        ]
    )
    del config.model.chat_template  # sft/trainer.py takes it out, too
    for section in SECTIONS_OF_SFT:
        omega_conf_to_dataclass(config[section])
