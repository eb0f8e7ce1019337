"""Measure a step's passes and its update, by `algorithm.old_logp`.

    python -m benchmarks.step --model FOLDER

Steps of one update by verl's own TrainingWorker (FSDP2, gloo), with our head and loss: with the pass for old log-probs
before it, without it, and with a pass of the refined answers alone (a third of the sequences).
"""

import argparse
import os
import socket
import statistics
import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.side_by_side import console, in_turns, new_table
from soul.cli.arguments import existing_folder, positive_int
from soul.cli.error_border import Parser, reports_errors


def training_worker(path: Path, model: dict[str, Any], engine: dict[str, Any], optimizer: dict[str, Any]) -> Any:
    """verl's TrainingWorker with FSDP2 in float32, and our head and attention; what differs is given by section."""
    from verl.trainer.config import CheckpointConfig
    from verl.workers.config import FSDPEngineConfig, FSDPOptimizerConfig, HFModelConfig, TrainingWorkerConfig
    from verl.workers.engine_workers import TrainingWorker

    usual: dict[str, Any] = {"load_tokenizer": False, "use_remove_padding": True, "use_fused_kernels": True}
    usual |= {"external_lib": "ditto.model.install", "fused_kernel_options": {"impl_backend": "chunked"}}
    usual |= {"enable_gradient_checkpointing": False, "override_config": {"attn_implementation": "packed"}}
    precision: dict[str, Any] = {"model_dtype": "fp32", "mixed_precision": {"param_dtype": "fp32"}}
    worker = TrainingWorker(
        TrainingWorkerConfig(
            model_type="language_model",
            model_config=HFModelConfig(path=str(path), **(usual | model)),
            engine_config=FSDPEngineConfig(strategy="fsdp2", use_torch_compile=False, **(precision | engine)),
            optimizer_config=FSDPOptimizerConfig(**optimizer),
            checkpoint_config=CheckpointConfig(),
        )
    )
    worker.reset()
    return worker


def build_worker(model: Path, budget: int, *, chunked: bool = False) -> tuple[Any, dict[str, Any]]:
    """A worker in this process, and losses: verl's ("plain") and those of our objectives.

    Args:
        budget: tokens of a micro-batch.
        chunked: compute log-probs with our chunked head, as our runs do, instead of full logits, as verl does.
    """
    from verl.workers.config import FSDPActorConfig
    from verl.workers.utils.losses import ppo_loss

    from ditto.objectives import OBJECTIVES
    from ditto.objectives.losses import objective_loss
    from ditto.objectives.options import ObjectiveOptions

    library = "ditto.model.install" if chunked else "ditto.model.attention"
    sizes = {"use_dynamic_bsz": True, "max_token_len_per_gpu": budget, "infer_max_token_len_per_gpu": budget}
    plan = {"lr": 1e-6, "total_training_steps": 1000}
    worker = training_worker(model, {"external_lib": library, "use_fused_kernels": chunked}, sizes, plan)
    actor = FSDPActorConfig(
        strategy="fsdp2",
        rollout_n=1,
        use_dynamic_bsz=True,
        use_torch_compile=False,
        ppo_mini_batch_size=1,
        ppo_max_token_len_per_gpu=budget,
        clip_ratio_low=0.2,
        clip_ratio_high=0.28,
        clip_ratio_c=10.0,
    )
    ours = {
        name: partial(objective_loss, config=actor, objective=OBJECTIVES[name], options=ObjectiveOptions())
        for name in ("grpo", "ditto")
    }
    return worker, {"plain": partial(ppo_loss, config=actor)} | ours


def columns(sequences: int, prompt: int, response: int, vocabulary: int) -> dict[str, list[Any]]:
    """Random sequences in the fields that verl's queue holds; lengths vary by a quarter around the means."""
    import torch

    generator = torch.Generator().manual_seed(0)

    def around(mean: int) -> int:
        return int(torch.randint(mean * 3 // 4, mean * 5 // 4 + 1, (1,), generator=generator))

    rows: dict[str, list[Any]] = {}
    for _ in range(sequences):
        p, r = around(prompt), around(response)
        ids = torch.randint(3, vocabulary, (p + r,), generator=generator)
        advantage = float(torch.randn(1, generator=generator))
        row = row_columns(ids[:p], ids[p:], torch.ones(r, dtype=torch.int64), advantage, sequences * response)
        for key, value in row.items():
            rows.setdefault(key, []).append(value)
    return rows


def row_columns(prompt: Any, response: Any, mask: Any, advantage: float, tokens: int, part: int = 0) -> dict[str, Any]:
    """A sequence in the columns that the engine and the losses read.

    Args:
        tokens: sampled tokens of the mini-batch, over which the loss is a mean.
        part: the number of the part of the objective that trains the sequence.
    """
    import torch

    from ditto.objectives.losses import LOSS_WEIGHTS, ROWS

    ids, size = torch.cat([prompt, response]), len(response)
    return {
        "input_ids": ids,
        "position_ids": torch.arange(len(ids)),
        "prompts": prompt,
        "responses": response,
        "response_mask": mask,
        "loss_mask": mask,
        "old_log_probs": torch.full((size,), -7.0),
        "advantages": torch.full((size,), advantage),
        LOSS_WEIGHTS: torch.full((size,), 1.5 / tokens) * mask,
        ROWS: torch.tensor([float(part), 1.0 / tokens, 1.0 / tokens], dtype=torch.float64),
    }


def batch_of(rows: dict[str, list[Any]], **settings: Any) -> Any:
    """Return the batch of a worker."""
    import torch
    from verl.utils import tensordict_utils as tu

    jagged = {key: torch.nested.as_nested_tensor(value, layout=torch.jagged) for key, value in rows.items()}
    return tu.get_tensordict(jagged, settings)


def one_pass(worker: Any, rows: dict[str, list[Any]], **settings: Any) -> float:
    """CPU seconds of the log-probs of these rows."""
    names = ("input_ids", "position_ids", "prompts", "responses", "response_mask", "loss_mask")
    settings |= {"calculate_entropy": True, "compute_loss": False, "temperature": 1.0}
    data = batch_of({name: rows[name] for name in names}, **settings)
    start = time.process_time()
    worker.infer_batch(data)
    return time.process_time() - start


def one_update(
    worker: Any, rows: dict[str, list[Any]], updates: int, *, entropy: bool = False, **settings: Any
) -> float:
    """CPU seconds of one step's update (one process, one thread: comparable even on a busy machine)."""
    size = len(rows["input_ids"]) // updates
    data = batch_of(
        rows,
        calculate_entropy=entropy,
        distillation_use_topk=False,
        distillation_only=False,
        global_batch_size=size,
        mini_batch_size=size,
        epochs=1,
        seed=42,
        dataloader_kwargs={"shuffle": False},
        temperature=1.0,
        **settings,
    )
    start = time.process_time()
    worker.train_mini_batch(data)
    return time.process_time() - start


def as_only_rank() -> None:
    """Set torch's rendezvous variables for a process group of this process alone."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    os.environ |= {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}


def run_old_logp(arguments: argparse.Namespace) -> None:
    """Print the CPU seconds of a step's passes and update by `algorithm.old_logp`."""
    from ditto.objectives.losses import PLACES
    from ditto.verl_hooks.actor_worker import UpdateOutputs, places

    worker, losses = build_worker(arguments.model, arguments.budget, chunked=True)
    rows = columns(arguments.sequences, arguments.prompt, arguments.response, vocabulary=300)
    refined = {key: values[::3] for key, values in rows.items()}
    observed = rows | {PLACES: list(places(arguments.sequences).unbind())}
    itself = {key: values for key, values in observed.items() if key != "old_log_probs"}
    steps = {"recompute": (rows, rows), "auto": (None, itself), "rollout": (refined, observed)}
    seconds: dict[str, list[tuple[float, float]]] = {name: [] for name in steps}
    for number, name in in_turns(steps, arguments.rounds + 1):
        passed, updated = steps[name]
        before = one_pass(worker, passed) if passed is not None else 0.0
        worker.set_loss_fn(UpdateOutputs(losses["ditto"]) if PLACES in updated else losses["ditto"])
        update = one_update(worker, updated, updates=1, entropy=PLACES in updated)
        if number:  # the first round warms up
            seconds[name].append((before, update))
    tokens = sum(len(ids) for ids in rows["input_ids"])
    table = new_table(
        f"A step of one update, {arguments.sequences} sequences, {tokens:,} tokens: CPU s (median)",
        *("algorithm.old_logp", "pass", "update", "both", "of recompute"),
    )
    totals = {name: statistics.median(a + b for a, b in pairs) for name, pairs in seconds.items()}
    for name, pairs in seconds.items():
        parts = (statistics.median(pair[part] for pair in pairs) for part in (0, 1))
        share = totals[name] / totals["recompute"]
        table.add_row(name, *(f"{part:.3f}" for part in parts), f"{totals[name]:.3f}", f"{share:.2f}")
    console.print(table)


@reports_errors
def main(arguments: Sequence[str] | None = None) -> None:
    parser = Parser(prog="python -m benchmarks.step", description=__doc__)
    parser.add_argument("--model", type=existing_folder, required=True, help="in Hugging Face's form")
    parser.add_argument("--sequences", type=positive_int, default=48)
    parser.add_argument("--prompt", type=positive_int, default=110, help="mean tokens")
    parser.add_argument("--response", type=positive_int, default=24, help="mean tokens")
    parser.add_argument("--budget", type=positive_int, default=8192, help="tokens of a micro-batch")
    parser.add_argument("--rounds", type=positive_int, default=10)
    as_only_rank()
    run_old_logp(parser.parse_args(arguments))


if __name__ == "__main__":
    sys.exit(main())
