"""docs/sizing.md: which model fits on which GPUs, computed by the memory plan (`ditto.memory`) for the paper's recipe.

python docs/sizing.py            write the page
python docs/sizing.py --check    write nothing; fail if the page is not what the code says
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

from omegaconf import DictConfig

from ditto.launching.compose import load_config
from ditto.memory import cpu, estimate, setup
from ditto.memory import plan as planning
from ditto.memory.estimate import Change
from ditto.memory.model_shape import GIB, ModelShape, shape_of
from ditto.memory.plan import ASSUMED_GIB, MemoryPlan
from ditto.memory.setup import training_of
from soul.cli.error_border import Parser, reports_errors

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "sizing.md"
# From config.json of Qwen/Qwen3-0.6B, Qwen3-4B, Qwen3-8B and Qwen3-32B on the Hugging Face hub.
MODELS = {
    "Qwen3-0.6B": {"hidden": 1024, "layers": 28, "heads": 16, "intermediate": 3072, "tied": True},
    "Qwen3-4B": {"hidden": 2560, "layers": 36, "heads": 32, "intermediate": 9728, "tied": True},
    "Qwen3-8B": {"hidden": 4096, "layers": 36, "heads": 32, "intermediate": 12288, "tied": False},
    "Qwen3-32B": {"hidden": 5120, "layers": 64, "heads": 64, "intermediate": 25600, "tied": False},
}
CARDS = {"40 GB": 39.4, "80 GB": ASSUMED_GIB}  # GiB that a program sees
GPUS = (1, 4, 8)
NODES = (1, 2, 4, 8)  # of eight 80 GB cards each
SHORT = {  # names in the table of what has to be changed
    planning.TOKENS: "tokens",
    planning.ENGINES: "tp",
    planning.OFFLOAD: "offload policy",
}


@cache
def shape(name: str) -> ModelShape:
    """A model's shape, from its config."""
    from transformers import Qwen3Config

    sizes = MODELS[name]
    config = Qwen3Config(
        hidden_size=sizes["hidden"],
        num_hidden_layers=sizes["layers"],
        num_attention_heads=sizes["heads"],
        intermediate_size=sizes["intermediate"],
        tie_word_embeddings=sizes["tied"],
        num_key_value_heads=8,
        head_dim=128,
        vocab_size=151936,
    )
    return shape_of(config, name)


@cache
def recipe() -> DictConfig:
    """The paper's recipe on a GPU node."""
    words = ["--config-dir", str(ROOT / "recipe/ditto/config"), "--config-name", "ditto", "platform=gpu"]
    return load_config([*words, "data.train_files=[train.parquet]", "data.val_files=[val.parquet]"])


def plan(name: str, lora: bool, gpus: int, gib: float, nodes: int = 1) -> MemoryPlan:
    """The plan of a run of the recipe."""
    return MemoryPlan(config_of(lora, gpus, nodes), shape(name), int(gib * GIB), "NVIDIA H100 80GB HBM3")


@cache
def config_of(lora: bool, gpus: int, nodes: int) -> DictConfig:
    """The recipe on other devices, and without its adapter."""
    config = copy.deepcopy(recipe())
    config.trainer.n_gpus_per_node, config.trainer.nnodes = gpus, nodes
    config.actor_rollout_ref.model.lora_rank *= lora
    return config


def cell(name: str, lora: bool, gpus: int, gib: float, nodes: int = 1) -> str:
    """The table's cell of one combination."""
    needed, change = plan(name, lora, gpus, gib, nodes), Change()
    if needed.problems:
        found = needed.remedy()
        if found is None:
            return "no"
        change, needed = found
    most = max(phase.total for phase in needed.phases) / GIB
    words = [f"{SHORT[key]} {value:,}" if value is not True else SHORT[key] for key, value in change.items()]
    return f"{', '.join(words) or 'yes'} ({most:.0f}; {needed.host_peak / GIB:.0f})"


def rank() -> int:
    """The rank of the recipe's adapter."""
    return int(recipe().actor_rollout_ref.model.lora_rank)


def fits() -> Iterator[str]:
    """The table."""
    yield "| | " + " | ".join(f"{gpus} x {card}" for gpus in GPUS for card in CARDS) + " |"
    yield "|---" * (1 + len(GPUS) * len(CARDS)) + "|"
    for name in MODELS:
        for lora in (True, False):
            cells = [cell(name, lora, gpus, gib) for gpus in GPUS for gib in CARDS.values()]
            yield f"| {name}, {'LoRA ' + str(rank()) if lora else 'full'} | " + " | ".join(cells) + " |"


def several_nodes() -> Iterator[str]:
    """The table of what more nodes change."""
    yield "| | " + " | ".join(f"{nodes} x 8 x 80 GB" for nodes in NODES) + " |"
    yield "|---" * (1 + len(NODES)) + "|"
    for name in MODELS:
        for lora in (True, False):
            cells = [cell(name, lora, 8, ASSUMED_GIB, nodes) for nodes in NODES]
            yield f"| {name}, {'LoRA ' + str(rank()) if lora else 'full'} | " + " | ".join(cells) + " |"


def models() -> Iterator[str]:
    """The numbers that the arithmetic starts from."""
    yield "| | weights | LoRA 32 | KiB a token and layer kept | KiB a token in one layer | cache, KiB a token |"
    yield "|---|---:|---:|---:|---:|---:|"
    for name in MODELS:
        model = shape(name)
        layer = sum(training_of(model, recipe()).layer_activations()) / 1024
        stream, cached = 2 * model.hidden / 1024, 4 * model.layers * model.key_value / 1024
        yield (
            f"| {name} | {model.weights:,} | {model.adapter(rank()):,} | {stream:.0f} | {layer:.0f} | {cached:.0f} |"
        )


def example() -> str:
    """The plan that a dry run prints."""
    return "\n".join(plan("Qwen3-8B", True, 8, ASSUMED_GIB).lines())


def page() -> str:
    """The page."""
    rollout = recipe().actor_rollout_ref.rollout
    longest = f"{rollout.max_model_len:,}"
    tokens = f"{recipe().actor_rollout_ref.actor.ppo_max_token_len_per_gpu:,}"
    return f"""<!-- Made by docs/sizing.py. Change the code, not this page. -->

# Which model fits on which GPUs

`DRY_RUN=1` prints a memory plan for the run, and a run that cannot fit ends there, with the overrides that make it fit,
if there are any. This page has the same numbers for the paper's recipe: LoRA {rank()} or
full fine-tuning, micro-batches of {tokens} tokens, sequences of up to {longest} tokens, vLLM on the same
GPUs with a share of {rollout.gpu_memory_utilization}.

## The table

*yes*: the recipe runs as it stands. *no*: no override helps. Otherwise the cell names what you have to change:

- *tokens*: `{planning.TOKENS}`
- *tp*: `{planning.ENGINES}`
- *offload policy*: `{planning.OFFLOAD}=true`; weights, gradients and optimizer
  stay on the host, which is slow

In parentheses: GiB on each GPU in the fullest phase; GiB of host memory on the node.

{chr(10).join(fits())}

## Several nodes

`trainer.nnodes` nodes of eight 80 GB cards share weights, gradients and optimizer, so full fine-tuning takes less of
each card. vLLM and the activations of a micro-batch take as much of a GPU as on one node ([scaling](scaling.md)).

{chr(10).join(several_nodes())}

## What a dry run prints

Qwen3-8B on a node with eight 80 GB cards:

```text
{example()}
```

{_sources()}"""


def _sources() -> str:
    """The sections on where the numbers come from."""
    reserve = f"{estimate.TRAINER / GIB:.1f} GiB, and {estimate.FRAGMENTS:.0%} of activations and logits"
    asleep = f"{setup.CONTEXT / GIB:.1f} + {setup.GRAPHS / GIB:.1f} GiB"
    processes = f"{setup.GPU_PROCESSES // GIB} GiB a GPU, {setup.AGENT_WORKER // GIB} an agent-loop worker"
    return f"""## Where the numbers come from

Weights are counted in the model that transformers builds on the meta device: exact for every dense decoder, with or
without a vision tower. The plan places them as verl's FSDP2 engine does: sharded weights in `model_dtype`, one layer
and the next gathered in `mixed_precision.param_dtype`, gradients in `mixed_precision.reduce_dtype` while they are
exchanged.

Activations follow transformers' decoder layers: gradient checkpointing keeps each layer's input, and the backward pass
computes one layer again at a time. `tests/ditto/memory` compares the sum with torch's FSDP2 memory tracker: it is
at most 2 % below, which the reserve covers, and a fifth above.

{chr(10).join(models())}

## Without a GPU

With `PLATFORM=cpu` trainer and vLLM hold their memory at the same time, and the plan compares it with the machine's
free memory, or a container's. It chooses what the config leaves open (null): the size of the pieces in which weights go
to vLLM (the largest tensor, which must fit into /dev/shm), vLLM's cache (all sequences that are played at once, at most
a fifth of the free memory), the tokens of a micro-batch, and gradient checkpointing, which it uses only if a
micro-batch does not fit without. SmolLM2-135M with sequences of 1,280 tokens, full fine-tuning, on a machine with
24 GB:

```text
memory        0.13 B weights (all trained), at most 15.3 GiB (trainer 10.3, vLLM 1.8, processes 3.1) of 21.6 free
              micro-batches of 4,096 tokens without gradient checkpointing
              vLLM caches keys and values of 11,264 tokens, and gets weights in pieces of 108 MiB
              2 threads for each process that computes
```

Supervised training on a CPU chooses the same, without vLLM. Each process computes with its device's share of the
physical cores (`OMP_NUM_THREADS`).

## What is assumed

No memory tracker sees these values. If you measure others, correct them in `verl/ditto/memory/`.

| what | assumed | where |
|---|---|---|
| CUDA context, NCCL, workspaces of the training process; fragments | {reserve} | `estimate.py` |
| vLLM's CUDA context and CUDA graphs, which stay while it sleeps | {asleep} | `setup.py` |
| processes on the host | {processes}, {setup.DRIVER // GIB} for the driver | `setup.py` |
| the processes of a run without a GPU | {cpu.PROCESSES // GIB} GiB, {cpu.DEVICE_PROCESSES // GIB} a device; of \
supervised training {cpu.DEVICE_PROCESSES // GIB} GiB, {cpu.DEVICE_PROCESSES // GIB} a device | `cpu.py` |
| the size of a GPU where none is found and `memory.gpu_gib` is null | {ASSUMED_GIB} GiB | `plan.py` |

An adapter makes vLLM sleep at level 1: the weights of every GPU's engine stay in pinned host memory, where each
tensor's size is rounded up to a power of two. A model with a tied head (0.6B, 4B) is loaded by every process at once.
Images are not counted: the tasks of SOUL have none, and the vision tower of a text batch sees a dummy.
"""


@reports_errors
def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit code."""
    parser = Parser(prog="python docs/sizing.py", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; fail where the page is old")
    check = parser.parse_args(arguments).check
    wanted = page()
    if PAGE.exists() and PAGE.read_text(encoding="utf-8") == wanted:
        return 0
    print(f"{PAGE.relative_to(ROOT)}: {'is old' if check else 'written'}")
    if not check:
        PAGE.write_text(wanted, encoding="utf-8")
    return int(check)


if __name__ == "__main__":
    sys.exit(main())
