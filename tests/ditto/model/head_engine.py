"""One rank of verl's FSDP2 engine on a CPU: loss and gradients with the chunked head and with full logits.

Run by test_chunked_head.py, in its process or in several with torch's rendezvous variables set:

    python -m tests.ditto.model.head_engine FOLDER
"""

import sys
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor
from transformers import Qwen3Config, Qwen3ForCausalLM, Qwen3VLForConditionalGeneration
from verl.utils import tensordict_utils as tu
from verl.workers.config import FSDPActorConfig
from verl.workers.engine_workers import TrainingWorker
from verl.workers.utils.losses import ppo_loss, sft_loss

from benchmarks.step import training_worker
from ditto.model import chunked_head
from tests.ditto.model.tiny_qwen import qwen3_vl, text_sizes

VOCAB, TEMPERATURE = 48, 0.7
LORA = {"lora_rank": 4, "lora_alpha": 8}
# name -> model, tied, what of HFModelConfig differs, compute dtype
CASES: dict[str, tuple[str, bool, dict[str, Any], str]] = {
    "untied": ("qwen3", False, {}, "fp32"),
    "tied": ("qwen3", True, {}, "fp32"),
    "untied, LoRA": ("qwen3", False, LORA, "fp32"),
    "tied, LoRA": ("qwen3", True, LORA, "fp32"),
    "LoRA on the head": ("qwen3", True, LORA | {"target_modules": ["q_proj", "lm_head"]}, "fp32"),
    "untied, padded rows": ("qwen3", False, {"use_remove_padding": False}, "fp32"),
    "Qwen3-VL, untied": ("qwen3_vl", False, {}, "fp32"),
    "Qwen3-VL, tied, LoRA": ("qwen3_vl", True, LORA, "fp32"),
    "untied, bfloat16": ("qwen3", False, {}, "bf16"),
    "tied, bfloat16": ("qwen3", True, {}, "bf16"),
}


def make_models(folder: Path) -> None:
    """Random models of a few thousand parameters."""
    text = text_sizes(VOCAB, num_attention_heads=2, num_key_value_heads=1, initializer_range=0.2)
    for tied in (False, True):
        torch.manual_seed(0)
        Qwen3ForCausalLM(Qwen3Config(**text, tie_word_embeddings=tied)).save_pretrained(folder / f"qwen3_{tied}")
        Qwen3VLForConditionalGeneration(qwen3_vl(text, tied=tied)).save_pretrained(folder / f"qwen3_vl_{tied}")


def worker_of(folder: Path, case: str, backend: str = "chunked") -> TrainingWorker:
    model, tied, changes, dtype = CASES[case]
    section = {"fused_kernel_options": {"impl_backend": backend}, "override_config": {"attn_implementation": "sdpa"}}
    engine = {"mixed_precision": {"param_dtype": dtype}}
    worker = training_worker(folder / f"{model}_{tied}", section | changes, engine, {"total_training_steps": 1})
    for name, parameter in worker.engine.module.named_parameters():
        if "lora_B" in name:  # zero at first, and with it the gradient of lora_A
            torch.nn.init.normal_(parameter.data, std=0.3, generator=torch.Generator().manual_seed(1))
    return worker


def batch(rank: int, use_remove_padding: bool, chunked: bool) -> Any:
    """Four rows for two micro-batches; the same for both heads."""
    chance = torch.Generator().manual_seed(rank)
    rows = [torch.randint(2, 40, (length,), generator=chance) for length in (20, 9, 31, 14)]
    answers = [len(row) // 2 for row in rows]

    def nested(tensors: list[Tensor]) -> Tensor:
        return torch.nested.as_nested_tensor(tensors, layout=torch.jagged)

    def answered(draw: Any) -> Tensor:
        return nested([draw(length) for length in answers])

    tensors = {
        "input_ids": nested(rows),
        "position_ids": nested([torch.arange(len(row)) for row in rows]),
        "prompts": nested([row[:-n] for row, n in zip(rows, answers, strict=True)]),
        "responses": nested([row[-n:] for row, n in zip(rows, answers, strict=True)]),
        "response_mask": answered(lambda n: torch.ones(n, dtype=torch.long)),
        "trained": nested([(torch.arange(len(row)) >= 3).long() for row in rows]),  # of the whole row, for SFT
        "old_log_probs": answered(lambda n: -4 + torch.rand(n, generator=chance)),
        "advantages": answered(lambda n: torch.randn(n, generator=chance)),
    }
    settings = dict(
        use_remove_padding=use_remove_padding,
        use_fused_kernels=chunked,
        use_dynamic_bsz=True,
        max_token_len_per_gpu=40,
        temperature=TEMPERATURE,
        calculate_entropy=True,
        global_batch_size=8,
    )
    return tu.get_tensordict(tensors, settings)


def step(worker: TrainingWorker, loss_name: str, use_remove_padding: bool, chunked: bool) -> dict[str, Any]:
    """Loss, every gradient, and what `compute_log_prob` answers."""
    config = FSDPActorConfig(
        strategy="fsdp2", rollout_n=1, use_dynamic_bsz=True, use_torch_compile=False, entropy_coeff=0.3
    )
    loss = partial(ppo_loss if loss_name == "rl" else sft_loss, config=config)
    engine = worker.engine
    data = batch(engine.get_data_parallel_rank(), use_remove_padding, chunked)
    data["loss_mask"] = data["response_mask" if loss_name == "rl" else "trained"]
    with engine.eval_mode():
        found = engine.infer_batch(data.clone(), loss_function=None)["model_output"]
    # The log-prob behind a row's last token is of nothing, and verl's two paths fill it differently.
    outputs = {name: torch.cat([row[:-1] for row in found[name].unbind()]) for name in ("log_probs", "entropy")}
    with engine.train_mode():
        engine.optimizer_zero_grad()
        losses = engine.forward_backward_batch(data, loss)["loss"]
        gradients = {
            name: (p.grad.full_tensor() if isinstance(p.grad, DTensor) else p.grad).clone()
            for name, p in engine.module.named_parameters()
            if p.grad is not None
        }
    return {"loss": torch.tensor(losses).sum(), "outputs": outputs, "gradients": gradients}


def error_of_verls_head(folder: Path) -> str:
    """What verl's own head says of an untied weight."""
    forward = Qwen3ForCausalLM.forward
    worker = worker_of(folder, "untied", backend="torch")
    try:
        step(worker, "sft", True, True)
    except RuntimeError as error:
        return str(error)
    finally:
        Qwen3ForCausalLM.forward = forward  # verl writes its own into the class
    return ""


def main(folder: Path) -> None:
    chunked_head.LOGITS_PER_CHUNK = 7 * VOCAB  # several chunks to a micro-batch
    results: dict[str, Any] = {}
    for case, (_, _, changes, _) in CASES.items():
        worker = worker_of(folder, case)
        for loss in ("rl", "sft"):
            packed = changes.get("use_remove_padding", True)
            full, chunked = (step(worker, loss, packed, head) for head in (False, True))
            results[f"{case}, {loss}"] = {"full": full, "chunked": chunked}
    results["verl's own head"] = error_of_verls_head(folder)
    if torch.distributed.get_rank() == 0:
        torch.save(results, folder / "results.pt")
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
