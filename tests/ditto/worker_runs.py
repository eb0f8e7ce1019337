"""One rank of verl's TrainingWorker with FSDP2 on a CPU: a step on each of many jobs, one after the other.

Importing verl costs far more than a step of a tiny model, so one process runs all jobs, each with a worker of its own.
test_worker_runs.py runs it in its own process or in several, with torch's rendezvous variables set:
worker_runs.py FOLDER
"""

import json
import os
import socket
import sys
from functools import partial
from pathlib import Path
from typing import Any

import torch
from verl.utils import tensordict_utils as tu
from verl.utils.fsdp_utils import get_fsdp_full_state_dict
from verl.workers.config import FSDPActorConfig
from verl.workers.engine_workers import TrainingWorker

from benchmarks.step import training_worker
from ditto.model.prefix_tree import tree
from ditto.objectives import OBJECTIVES
from ditto.objectives.losses import objective_loss
from ditto.objectives.options import ObjectiveOptions


def rendezvous(ranks: int = 1) -> dict[str, str]:
    """Make torch's variables of the first of so many ranks that meet at a free port of this machine."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    return {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": str(ranks), "RANK": "0", "LOCAL_RANK": "0"}


def worker_of(folder: Path, job: dict[str, Any]) -> TrainingWorker:
    adapter, optimizer = job["adapter"], dict(job["optimizer"])
    lora = {"lora_rank": 4, "lora_adapter_path": str(folder / adapter), "lora": {"merge": True}} if adapter else {}
    optimizer |= {"total_training_steps": 10, "override_optimizer_config": {"eps": optimizer.pop("eps")}}
    engine = {"use_dynamic_bsz": True, "max_token_len_per_gpu": job["micro_batch_tokens"]}
    engine |= {"param_offload": job["resumes"], "optimizer_offload": job["resumes"]}
    worker = training_worker(folder / "model", lora, engine, optimizer)
    config = FSDPActorConfig(
        strategy="fsdp2", rollout_n=1, use_dynamic_bsz=True, use_torch_compile=False, **job["actor"]
    )
    options = ObjectiveOptions(**job["options"])
    worker.engine.load_teachers([str(folder / name) for name in job["teachers"]])
    worker.set_loss_fn(partial(objective_loss, config=config, objective=OBJECTIVES[job["objective"]], options=options))
    return worker


def train(worker: TrainingWorker, columns: dict[str, list[torch.Tensor]], job: dict[str, Any]) -> list[float]:
    """Updates on rows of this rank. Returns the gradient norm of each update."""
    data = tu.get_tensordict(
        {key: torch.nested.as_nested_tensor(rows, layout=torch.jagged) for key, rows in columns.items()},
        # What DittoTrainer._update_actor passes.
        dict(
            calculate_entropy=False,
            distillation_use_topk=False,
            distillation_only=False,
            distillation=job["distillation"],
            prefix_tree=job["tree"],
            global_batch_size=job["rows"],
            mini_batch_size=job["rows"],
            epochs=1,
            seed=42,
            dataloader_kwargs={"shuffle": False},
            temperature=1.0,
        ),
    )
    norms: list[float] = tu.get(worker.train_mini_batch(data), "metrics")["grad_norm"]
    return norms


def run(folder: Path, job: dict[str, Any]) -> dict[str, Any]:
    """One step of a new worker, or of two: the second resumes after the first update.

    With `resumes_from` it is the second one alone, which may have another number of ranks than the first. It saves what
    it has loaded.
    """
    ranks, rank = int(os.environ["WORLD_SIZE"]), int(os.environ["RANK"])
    step = torch.load(folder / f"{job['name']}.pt", weights_only=True)
    size, per_rank = job["rows"] // ranks, len(step["input_ids"]) // ranks

    def rows(first: int, end: int) -> dict[str, list[torch.Tensor]]:
        return {key: column[rank * per_rank + first : rank * per_rank + end] for key, column in step.items()}

    worker = worker_of(folder, job)
    if not job["resumes"]:
        return results_of(worker, train(worker, rows(0, per_rank), job), job["adapter"])
    checkpoint = str(folder / f"{job['name']} checkpoint")
    if job["resumes_from"]:
        worker.load_checkpoint(job["resumes_from"], del_local_after_load=False)
        worker.save_checkpoint(checkpoint, global_step=1)
        return results_of(worker, train(worker, rows(size, per_rank), job), job["adapter"])
    norms = train(worker, rows(0, size), job)
    worker.save_checkpoint(checkpoint, global_step=1)
    resumed = worker_of(folder, job)
    resumed.load_checkpoint(checkpoint, del_local_after_load=False)
    return results_of(resumed, norms + train(resumed, rows(size, per_rank), job), job["adapter"])


def results_of(worker: TrainingWorker, norms: list[float], adapter: str | None) -> dict[str, Any]:
    """Gradient norms, the weights, the teacher's copies, and what a sampler would get of a LoRA run (bfloat16)."""
    engine = worker.engine
    teacher = engine.teacher
    copies = {} if teacher is None else {name: teacher.of(p).clone() for name, p in teacher.live.parameters.items()}
    return {
        "grad_norm": norms,
        "weights": get_fsdp_full_state_dict(engine.module),
        "teacher": copies,
        "merged": dict(engine.get_per_tensor_param()[0]) if adapter else {},
    }


def main(folder: Path) -> None:
    tree.SHORTEST = 2  # prompts of a few tokens
    results: dict[str, Any] = {}
    for job in json.loads((folder / "jobs.json").read_text()):
        results[job["name"]] = run(folder, job)
    if torch.distributed.get_rank() == 0:
        torch.save(results, folder / "results.pt")
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
