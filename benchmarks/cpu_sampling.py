"""Measure how fast vLLM's CPU build samples with a LoRA adapter, with and without what a run on a CPU changes.

    python -m benchmarks.cpu_sampling [--model FOLDER] [--answers 16] [--tokens 64] [--rounds 2]

    vLLM      its own products with an adapter, which copy the factors for every token, and threads that sleep at once
    factors   the same with factors that all tokens share (`ditto/verl_hooks/compat.py`)
    spin      the same with threads that spin for a moment (`soul/host_resources.py`): what a run and `eval.sh local` do
    base      the same without an adapter

Each program samples the same prompts in float32 on all physical cores, as a run's engine does. They run in turn,
`--rounds` times; wall seconds, on a machine that does nothing else. Without `--model` it is the demo's tiny model.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.side_by_side import console, in_turns, new_table, output_of
from soul.cli.arguments import existing_folder, positive_int
from soul.cli.error_border import Parser, reports_errors
from soul.host_resources import THREAD_VARIABLES, physical_cores

SLEEP, NO_PATCH = {"OMP_WAIT_POLICY": "PASSIVE"}, {"VLLM_PLUGINS": ""}
PROGRAMS = {"vLLM": SLEEP | NO_PATCH, "factors": SLEEP, "spin": THREAD_VARIABLES, "base": THREAD_VARIABLES}
RANK = 32


def prepare(folder: Path, model: Path | None) -> None:
    """Put the model and a new adapter into the folder."""
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    if model:
        (folder / "model").symlink_to(model.resolve())
    else:
        from recipe.demo import tiny_model

        tiny_model.build(folder / "model", ["The melon is in the basket."])
    config = LoraConfig(r=RANK, lora_alpha=2 * RANK, target_modules="all-linear")
    get_peft_model(AutoModelForCausalLM.from_pretrained(folder / "model"), config).save_pretrained(folder / "adapter")


def sample(folder: Path, answers: int, tokens: int, *, adapted: bool) -> None:
    """Print the seconds of a batch, after a first one that is not counted."""
    from vllm import LLM, SamplingParams
    from vllm.lora.request import LoRARequest

    engine = LLM(
        str(folder / "model"),
        dtype="float32",
        enforce_eager=True,
        max_model_len=1024,
        kv_cache_memory_bytes=2**30,
        enable_lora=adapted,
        max_lora_rank=RANK,
    )
    settings = SamplingParams(temperature=1.0, max_tokens=tokens, ignore_eos=True, logprobs=0)
    adapter = LoRARequest("adapter", 1, str(folder / "adapter")) if adapted else None
    for batch in range(2):
        prompts = [f"Batch {batch}. {'The melon is in the basket. ' * 30}Answer {n}:" for n in range(answers)]
        start = time.perf_counter()
        engine.generate(prompts, settings, lora_request=adapter, use_tqdm=False)
        seconds = time.perf_counter() - start
    print(json.dumps(seconds))


def run(name: str, folder: Path, args: argparse.Namespace) -> float:
    """Seconds of one program."""
    fixed = {"OMP_NUM_THREADS": str(physical_cores()), "VLLM_CPU_OMP_THREADS_BIND": "nobind", "VERL_PLATFORM": "cpu"}
    fixed |= {"TORCH_COMPILE_DISABLE": "1", "VLLM_ENABLE_V1_MULTIPROCESSING": "0"}
    removed = {"OMP_WAIT_POLICY": None, "GOMP_SPINCOUNT": None}
    words = [str(folder), str(args.answers), str(args.tokens), name]
    printed = output_of(
        [sys.executable, "-m", "benchmarks.cpu_sampling", "--child", *words], removed | fixed | PROGRAMS[name]
    )
    return float(json.loads(printed.splitlines()[-1]))


@reports_errors
def main(arguments: Sequence[str] | None = None) -> None:
    parser = Parser(prog="python -m benchmarks.cpu_sampling", description=__doc__)
    parser.add_argument("--model", type=existing_folder, help="a pretrained model instead of the demo's tiny one")
    parser.add_argument("--answers", type=positive_int, default=16, help="answers at once")
    parser.add_argument("--tokens", type=positive_int, default=64, help="tokens of an answer")
    parser.add_argument("--rounds", type=positive_int, default=2)
    parser.add_argument("--child", nargs=4, help=argparse.SUPPRESS)
    args = parser.parse_args(arguments)
    if args.child:
        folder, answers, tokens, name = args.child
        sample(Path(folder), int(answers), int(tokens), adapted=name != "base")
        return
    seconds: dict[str, list[float]] = {name: [] for name in PROGRAMS}
    with tempfile.TemporaryDirectory() as folder:
        prepare(Path(folder), args.model)
        for number, name in in_turns(PROGRAMS, args.rounds):
            console.print(f"round {number + 1} of {args.rounds}: {name}")
            seconds[name].append(run(name, Path(folder), args))
    table = new_table(f"{args.answers} answers of {args.tokens} tokens, wall seconds", "", *PROGRAMS)
    medians = [statistics.median(values) for values in seconds.values()]
    table.add_row("seconds", *(f"{value:.2f}" for value in medians))
    table.add_row("vLLM's seconds over these", *(f"{medians[0] / value:.2f}" for value in medians))
    console.print(table)


if __name__ == "__main__":
    sys.exit(main())
