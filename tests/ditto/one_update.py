"""One rank of verl's TrainingWorker with FSDP2 on a CPU: train on the rows of a folder, leave norms and weights there.

Run by test_update.py in processes of their own, with torch's rendezvous variables set:  one_update.py FOLDER
"""

import json
import os
import sys
from functools import partial
from pathlib import Path

import torch
from verl.trainer.config import CheckpointConfig
from verl.utils import tensordict_utils as tu
from verl.utils.fsdp_utils import get_fsdp_full_state_dict
from verl.workers.config import (
    FSDPActorConfig,
    FSDPEngineConfig,
    FSDPOptimizerConfig,
    HFModelConfig,
    TrainingWorkerConfig,
)
from verl.workers.engine_workers import TrainingWorker

from ditto.objectives.losses import objective_loss


def main(folder: Path) -> None:
    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    job = json.loads((folder / "job.json").read_text())
    saved = torch.load(folder / "data.pt", weights_only=True)
    eps = job["optimizer"].pop("eps")
    worker = TrainingWorker(
        TrainingWorkerConfig(
            model_type="language_model",
            model_config=HFModelConfig(
                path=str(folder / "model"),
                load_tokenizer=False,
                use_remove_padding=True,
                enable_gradient_checkpointing=False,
                external_lib="ditto.model.attention",
                override_config={"attn_implementation": "packed"},
            ),
            engine_config=FSDPEngineConfig(
                strategy="fsdp2",
                model_dtype="fp32",
                mixed_precision={"param_dtype": "fp32"},
                use_torch_compile=False,
                use_dynamic_bsz=True,
                max_token_len_per_gpu=150,  # several micro-batches
            ),
            optimizer_config=FSDPOptimizerConfig(
                **job["optimizer"], total_training_steps=10, override_optimizer_config={"eps": eps}
            ),
            checkpoint_config=CheckpointConfig(),
        )
    )
    worker.reset()
    config = FSDPActorConfig(
        strategy="fsdp2", rollout_n=1, use_dynamic_bsz=True, use_torch_compile=False, **job["actor"]
    )
    worker.set_loss_fn(partial(objective_loss, config=config))
    columns = saved["columns"]
    per_rank = len(columns["input_ids"]) // ranks
    mine = slice(rank * per_rank, (rank + 1) * per_rank)
    data = tu.get_tensordict(
        {key: torch.nested.as_nested_tensor(rows[mine], layout=torch.jagged) for key, rows in columns.items()},
        # What DittoTrainer._update_actor passes.
        dict(
            calculate_entropy=False,
            distillation_use_topk=False,
            distillation_only=False,
            global_batch_size=saved["rows"],
            mini_batch_size=saved["rows"],
            epochs=1,
            seed=42,
            dataloader_kwargs={"shuffle": False},
            temperature=1.0,
        ),
    )
    metrics = tu.get(worker.train_mini_batch(data), "metrics")
    weights = get_fsdp_full_state_dict(worker.engine.module)
    if rank == 0:
        torch.save({"grad_norm": metrics["grad_norm"], "weights": weights}, folder / "result.pt")
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
