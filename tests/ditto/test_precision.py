"""What is trained is float32 on a GPU: at the recipe's learning rate a bfloat16 weight of ordinary size never moves.

The actor section of the composed GPU config builds verl's FSDP2 engine here, on the CPU: storage, compute and reduction
have the dtypes they have on a GPU. A hundred updates must move every weight that has a gradient.
"""

from functools import partial
from pathlib import Path

import pytest
import torch
from omegaconf import open_dict
from transformers import Qwen3Config, Qwen3ForCausalLM
from verl.utils import tensordict_utils as tu
from verl.utils.config import omega_conf_to_dataclass
from verl.workers.config import TrainingWorkerConfig
from verl.workers.engine_workers import TrainingWorker
from verl.workers.utils.losses import ppo_loss

from tests.ditto.config_checks.test_configs import compose
from tests.ditto.worker_runs import rendezvous

UPDATES, VOCAB = 100, 64


@pytest.fixture
def tiny_model(tmp_path: Path) -> Path:
    """One layer, its weights as large as those of an 8B model (0.02), stored in bfloat16 as that one's."""
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=VOCAB,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=16,
        tie_word_embeddings=False,
        eos_token_id=1,
        pad_token_id=0,
        bos_token_id=None,
    )
    Qwen3ForCausalLM(config).bfloat16().save_pretrained(tmp_path)
    return tmp_path


def gpu_worker(model: Path, overrides: list[str]) -> TrainingWorker:
    """The actor of `run_rl.sh` on a GPU, built as verl's ActorRolloutRefWorker does it; only the kernels differ."""
    kernels = ["use_fused_kernels=false", "use_remove_padding=false", "override_config.attn_implementation=sdpa"]
    config = compose(
        "run_rl",
        "gpu",
        f"actor_rollout_ref.model.path={model}",
        *[f"{'+' * k.startswith('+')}actor_rollout_ref.model.{k.removeprefix('+')}" for k in kernels],
        *overrides,
    ).actor_rollout_ref
    with open_dict(config.model):
        config.model.load_tokenizer = False
    actor = omega_conf_to_dataclass(config.actor)
    actor.engine.use_dynamic_bsz, actor.engine.max_token_len_per_gpu = True, actor.ppo_max_token_len_per_gpu
    actor.optim.total_training_steps = UPDATES
    worker = TrainingWorker(
        TrainingWorkerConfig(
            model_type="language_model",
            model_config=omega_conf_to_dataclass(config.model),
            engine_config=actor.engine,
            optimizer_config=actor.optim,
            checkpoint_config=actor.checkpoint,
        )
    )
    worker.reset()
    worker.set_loss_fn(partial(ppo_loss, config=actor))
    return worker


def train(worker: TrainingWorker) -> None:
    """One step of `UPDATES` updates: two rows, one better and one worse than expected."""
    prompt, response = 3, 13
    rows = list(torch.randint(2, VOCAB, (2, prompt + response), generator=torch.Generator().manual_seed(1)))
    columns = {
        "input_ids": rows,
        "position_ids": [torch.arange(prompt + response)] * 2,
        "prompts": [row[:prompt] for row in rows],
        "responses": [row[prompt:] for row in rows],
        "response_mask": [torch.ones(response, dtype=torch.long)] * 2,
        "loss_mask": [torch.ones(response, dtype=torch.long)] * 2,
        "old_log_probs": [torch.full((response,), -4.2)] * 2,
        "advantages": [torch.full((response,), 1.0), torch.full((response,), -1.0)],
    }
    settings = {"calculate_entropy": False, "distillation_use_topk": False, "distillation_only": False}
    settings |= {"global_batch_size": 2, "mini_batch_size": 2, "epochs": UPDATES, "temperature": 1.0}
    nested = {key: torch.nested.as_nested_tensor(values, layout=torch.jagged) for key, values in columns.items()}
    worker.train_mini_batch(tu.get_tensordict(nested, settings))


@pytest.mark.parametrize("lora_rank", [32, 0])
def test_every_trained_weight_moves(lora_rank: int, tiny_model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in rendezvous().items():
        monkeypatch.setenv(name, value)
    worker = gpu_worker(tiny_model, [f"actor_rollout_ref.model.lora_rank={lora_rank}"])
    try:
        weights = dict(worker.engine.module.named_parameters())
        trained = {name: parameter for name, parameter in weights.items() if parameter.requires_grad}
        start = {name: parameter.full_tensor().clone() for name, parameter in trained.items()}
        train(worker)
        entries = moved = 0
        for name, parameter in trained.items():
            state = worker.engine.optimizer.state[parameter]
            has_gradient = state["exp_avg_sq"].full_tensor() > 0
            entries += int(has_gradient.sum())
            moved += int(((parameter.full_tensor() != start[name]) & has_gradient).sum())
        print(f"lora_rank={lora_rank}: {moved} of {entries} entries with a gradient moved")
        assert entries > 5000 and moved > 0.99 * entries
        assert parameter.dtype == state["exp_avg"].dtype == state["exp_avg_sq"].dtype == torch.float32
        # Compute stays bfloat16, and what is not trained is stored in it.
        assert worker.engine._autocast_dtype == torch.bfloat16
        assert all(weights[name].dtype == torch.bfloat16 for name in weights if name not in trained)
        assert bool(lora_rank) == (len(trained) < len(weights))
    finally:
        torch.distributed.destroy_process_group()
