"""docs/sizing.md: which model fits on which GPUs, computed by the memory plan (`ditto.memory`) for the paper's recipe.

python docs/sizing.py            write the page
python docs/sizing.py --check    write nothing; fail if the page is not what the code says
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from functools import cache, partial
from pathlib import Path

from omegaconf import DictConfig

from ditto.launching.compose import load_config
from ditto.memory import cpu, estimate, plan
from ditto.memory.estimate import GIB, Model, read_model
from ditto.memory.plan import ASSUMED_GIB, remedies, rl_plan, rl_training
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
RANK = 32  # of the recipe's adapter
GPUS = (1, 4, 8)
NODES = (1, 2, 4, 8)  # of eight 80 GB cards each
SHORT = {plan.TOKENS: "tokens", plan.ENGINES: "tp", plan.OFFLOAD: "offload policy"}  # what has to be changed


@cache
def model(name: str, rank: int) -> Model:
    """A model's sizes, from its config."""
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
    return read_model(config, name, rank)


@cache
def recipe() -> DictConfig:
    """The paper's recipe on a GPU node."""
    words = ["--config-dir", str(ROOT / "recipe/ditto/config"), "--config-name", "ditto", "platform=gpu"]
    return load_config([*words, "data.train_files=[train.parquet]", "data.val_files=[val.parquet]"])


def cell(name: str, rank: int, gpus: int, gib: float, nodes: int = 1) -> str:
    """The table's cell of one combination."""
    config = recipe()  # a copy takes a third of a second
    config.trainer.n_gpus_per_node, config.trainer.nnodes = gpus, nodes
    config.actor_rollout_ref.model.lora_rank = rank
    found = plan.remedy(config, remedies(config), partial(rl_plan, model=model(name, rank), gpu=(int(gib * GIB), "")))
    if found is None:
        return "no"
    change, made = found
    most = max(phase.total for phase in made.phases.values()) / GIB
    words = [f"{SHORT[key]} {value:,}" if value is not True else SHORT[key] for key, value in change.items()]
    return f"{', '.join(words) or 'yes'} ({most:.0f})"


def table(columns: dict[str, tuple[int, float, int]]) -> Iterator[str]:
    """A table of all models; a column's GPUs of a node, GiB of each, and nodes."""
    yield "| | " + " | ".join(columns) + " |"
    yield "|---" * (1 + len(columns)) + "|"
    for name in MODELS:
        for rank in (RANK, 0):
            cells = [cell(name, rank, *column) for column in columns.values()]
            yield f"| {name}, {f'LoRA {rank}' if rank else 'full'} | " + " | ".join(cells) + " |"


def models() -> Iterator[str]:
    """The numbers that the arithmetic starts from."""
    yield "| | weights | LoRA 32 | KiB a token and layer kept | KiB a token in one layer | cache, KiB a token |"
    yield "|---|---:|---:|---:|---:|---:|"
    for name in MODELS:
        of = model(name, RANK)
        layer = sum(rl_training(recipe(), of).layer_activations()) / 1024
        stream, cached = 2 * of.hidden / 1024, 4 * of.layers * of.key_value / 1024
        yield f"| {name} | {of.weights:,} | {of.adapter:,} | {stream:.0f} | {layer:.0f} | {cached:.0f} |"


def example() -> str:
    """The plan that a dry run prints."""
    config, gpu = recipe(), (int(ASSUMED_GIB * GIB), "NVIDIA H100 80GB HBM3")
    config.trainer.n_gpus_per_node, config.trainer.nnodes, config.actor_rollout_ref.model.lora_rank = 8, 1, RANK
    return "\n".join(rl_plan(config, model("Qwen3-8B", RANK), gpu).lines())


def page() -> str:
    """The page."""
    rollout = recipe().actor_rollout_ref.rollout
    longest = f"{rollout.max_model_len:,}"
    one_node = {f"{gpus} x {card}": (gpus, gib, 1) for gpus in GPUS for card, gib in CARDS.items()}
    several = {f"{nodes} x 8 x 80 GB": (8, ASSUMED_GIB, nodes) for nodes in NODES}
    tokens = f"{recipe().actor_rollout_ref.actor.ppo_max_token_len_per_gpu:,}"
    return f"""<!-- Made by docs/sizing.py. Change the code, not this page. -->

# Which model fits on which GPUs

`DRY_RUN=1` prints a memory plan for the run, and a run that cannot fit ends there, with the overrides that make it fit,
if there are any. This page has the same numbers for the paper's recipe: LoRA {RANK} or
full fine-tuning, micro-batches of {tokens} tokens, sequences of up to {longest} tokens, vLLM on the same
GPUs with a share of {rollout.gpu_memory_utilization}.

## The table

*yes*: the recipe runs as it stands. *no*: no override helps. Otherwise the cell names what you have to change:

- *tokens*: `{plan.TOKENS}`
- *tp*: `{plan.ENGINES}`
- *offload policy*: `{plan.OFFLOAD}=true`; weights, gradients and optimizer
  stay on the host, which is slow

In parentheses: GiB on each GPU in the fullest phase. [GPUs](gpu.md) says how much memory the host needs.

{chr(10).join(table(one_node))}

## Several nodes

`trainer.nnodes` nodes of eight 80 GB cards share weights, gradients and optimizer, so full fine-tuning takes less of
each card. vLLM and the activations of a micro-batch take as much of a GPU as on one node ([scaling](scaling.md)).

{chr(10).join(table(several))}

## What a dry run prints

Qwen3-8B on a node with eight 80 GB cards:

```text
{example()}
```

{_sources()}"""


def _sources() -> str:
    """The sections on where the numbers come from."""
    reserve = f"{estimate.CONTEXT / GIB:.1f} GiB, and {estimate.FRAGMENTS:.0%} of activations and logits"
    asleep = f"{plan.VLLM_CONTEXT / GIB:.1f} + {plan.GRAPHS / GIB:.1f} GiB"
    return f"""## Where the numbers come from

Weights are counted in the model that transformers builds on the meta device; an adapter counts as if all linear maps
had one. The plan places them as verl's FSDP2 engine does: sharded weights in `model_dtype`, one layer and the
next gathered in `mixed_precision.param_dtype`, gradients in float32 while they are exchanged. Of a mixture of experts,
a layer's activations are those of the experts that a token uses.

Activations follow transformers' decoder layers: gradient checkpointing keeps each layer's input, and the backward pass
computes one layer again at a time. `tests/ditto/memory` compares the sum with torch's FSDP2 memory tracker: it is at
most 2 % below, which the reserve covers, and a fifth above.

{chr(10).join(models())}

## Without a GPU

With `PLATFORM=cpu` trainer and vLLM hold their memory at the same time, and the plan compares it with the machine's
free memory, or a container's. It chooses what the config leaves open (null): the size of the pieces in which weights go
to vLLM (the largest tensor, which must fit into /dev/shm), vLLM's cache (all sequences that are played at once, at most
a fifth of the free memory), the tokens of a micro-batch, and gradient checkpointing, which it uses only if a
micro-batch does not fit without. SmolLM2-135M with sequences of 1,280 tokens, full fine-tuning, on a machine with
24 GB:

```text
memory        SmolLM2-135M: 0.13 B weights, all trained, at most 15.3 GiB (trainer 10.3, vLLM 1.8, processes 3.1) \
of 21.6 free
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
| vLLM's CUDA context and CUDA graphs, which stay while it sleeps | {asleep} | `plan.py` |
| the processes of a run without a GPU | {cpu.PROCESSES // GIB} GiB, {cpu.DEVICE_PROCESSES // GIB} a device; of \
supervised training {cpu.DEVICE_PROCESSES // GIB} GiB, {cpu.DEVICE_PROCESSES // GIB} a device | `cpu.py` |
| the size of a GPU where none is found and `memory.gpu_gib` is null | {ASSUMED_GIB} GiB | `plan.py` |

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
