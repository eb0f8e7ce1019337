"""Simulate the time of a training step on 8 to 512 GPUs, to plan a cluster. Simulated, not measured.

    python -m benchmarks.cluster                                              # the paper's recipe, all defaults
    python -m benchmarks.cluster --metrics outputs/run/metrics.jsonl --metrics-gpus 8   # parts from a run of yours
    python -m benchmarks.cluster --prompts 512 --updates 8

Without --metrics the parts are computed from data sheets and from assumed shares of what the hardware can do. Every
input is an option; the table after the result lists them all with their sources. With --metrics, sampling, log-probs,
update and sync are the medians of a run. Each function is one line of reasoning that you can repeat by hand;
tests/test_cluster.py does.

Not in the arithmetic: start-up, validation, checkpoints, long prompts' attention, stragglers among nodes, failures, the
limits of an object store or a queue, offloading. No GPU has been compared with it.
"""

from __future__ import annotations

import json
import math
import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from rich.table import Table

from benchmarks.side_by_side import console, new_table
from soul.cli.arguments import existing_file, positive_float, positive_int, share
from soul.cli.error_border import Parser, reports_errors
from soul.errors import BadSettings

GPUS = (8, 16, 32, 64, 128, 256, 512)
# Metric of a run -> the input that it sets: seconds of all the run's GPUs, but for the sync.
PHASES = {
    "timing_s/gen": "gen_gpu_s",
    "timing_s/old_log_prob": "log_prob_gpu_s",
    "timing_s/update_actor": "update_gpu_s",
    "timing_s/update_weights": "sync_s",
}


def given(default: float | None, source: str, what: str) -> Any:
    """A field that is an option of the command, with the source of its default."""
    return field(default=default, metadata={"source": source, "what": what})


@dataclass(frozen=True)
class Inputs:
    """What the step time depends on. Times in seconds, sizes in bytes, rates per second."""

    prompts: int = given(64, "recipe: data.train_batch_size", "prompts of a step")
    group: int = given(8, "recipe: rollout.n", "sessions of a prompt")
    updates: int = given(4, "recipe: 64 prompts, 16 an update", "updates of a step")
    attempts: int = given(2, "DITTO: draft and refined answer", "answers of a session, one after the other")
    sequences: int = given(3, "DITTO: draft; refined answer in two contexts", "sequences that a session trains")
    prompt_tokens: float = given(2000, "assumption", "mean prompt")
    shared: float = given(
        0.9, "assumption; python -m benchmarks.prefix_tree prints it", "of a prompt, by its group; 0: prefix_tree=off"
    )
    response_tokens: float = given(500, "assumption", "mean response of an attempt")
    longest_tokens: float = given(2000, "assumption", "response of the slowest session, an attempt")
    weights: float = given(8.19e9, "docs/sizing.md: Qwen3-8B", "weights of the model")
    update_passes: float = given(
        3, "LoRA with checkpointing: forward twice, gradients of activations", "forward passes that an update costs"
    )
    cache_bytes: float = given(147456, "docs/sizing.md: 144 KiB", "keys and values of a token")
    cache_tokens: float = given(251745, "docs/sizing.md: Qwen3-8B on 80 GB", "tokens in the cache of a GPU")
    budget: float = given(65536, "recipe: ppo_max_token_len_per_gpu", "tokens of a micro-batch")
    gpus_per_node: int = given(8, "recipe: trainer.n_gpus_per_node", "GPUs of a node")
    flops: float = given(989e12, "data sheet of the H100 SXM: bfloat16, dense", "operations of a GPU")
    flops_share: float = given(0.4, "assumption", "of them that training and prefill reach")
    memory_rate: float = given(3.35e12, "data sheet of the H100 SXM", "memory bandwidth of a GPU")
    memory_share: float = given(0.6, "assumption", "of it that decoding reaches")
    node_rate: float = given(450e9, "data sheet of the H100 SXM: NVLink, one direction", "link of a GPU inside a node")
    network_rate: float = given(50e9, "data sheet of the DGX H100: 400 Gbit/s a GPU", "link of a GPU between nodes")
    network_share: float = given(0.7, "assumption", "of both links that is reached")
    judge_calls: float = given(
        3, "a judged task: two verdicts, one critique", "calls of a session, one after the other"
    )
    judge_s: float = given(5, "assumption; usage.json: latency_p50_s", "seconds of a call")
    judge_concurrency: float = given(64, "judge.concurrency", "calls in flight")
    sync_s: float = given(5, "assumption; metric timing_s/update_weights", "weights to the rollout engines")
    other_s: float = given(5, "assumption; what timing_s/step has beside its parts", "advantages, traces, queue")
    gen_gpu_s: float | None = given(None, "computed; --metrics: timing_s/gen x GPUs", "GPU seconds of sampling")
    log_prob_gpu_s: float | None = given(None, "computed; --metrics: timing_s/old_log_prob x GPUs", "of log-probs")
    update_gpu_s: float | None = given(None, "computed; --metrics: timing_s/update_actor x GPUs", "of the update")

    @property
    def sessions(self) -> int:
        return self.prompts * self.group

    @property
    def tokens(self) -> float:
        """Of a sequence that is trained."""
        return self.prompt_tokens + self.response_tokens

    @property
    def forward_s(self) -> float:
        """Of one token through the model: two operations a weight."""
        return 2 * self.weights / (self.flops * self.flops_share)


@dataclass(frozen=True)
class Step:
    """One step: its phases, and the time from one step to the next."""

    gpus: int  # all of them
    sampling: float
    log_probs: float
    update: float
    total: float
    training_gpus: int  # fewer than all only if rollouts have GPUs of their own


def decode_s(given: Inputs, at_once: float) -> float:
    """One token of each of so many sequences: the GPU reads all weights (bfloat16) and every sequence's cache."""
    context = given.prompt_tokens + given.response_tokens / 2
    return (2 * given.weights + at_once * context * given.cache_bytes) / (given.memory_rate * given.memory_share)


def sampling_work_s(given: Inputs, gpus: int) -> float:
    """Until all sessions are sampled, if every GPU is always busy."""
    if given.gen_gpu_s is not None:
        return given.gen_gpu_s / gpus
    of_a_gpu = given.sessions / gpus
    at_once = max(1.0, min(of_a_gpu, given.cache_tokens / given.tokens))
    decoding = given.attempts * given.response_tokens * decode_s(given, at_once) * max(1.0, of_a_gpu / at_once)
    return decoding + of_a_gpu * given.attempts * given.prompt_tokens * given.forward_s


def judge_work_s(given: Inputs) -> float:
    """Until the judge has answered all calls; more GPUs do not help."""
    return given.sessions * given.judge_calls * given.judge_s / given.judge_concurrency


def slowest_session_s(given: Inputs) -> float:
    """The longest answers on a GPU that does nothing else, and its judge; more GPUs do not help."""
    return given.attempts * given.longest_tokens * decode_s(given, 1) + given.judge_calls * given.judge_s


def rows_of_a_gpu(rows: float, gpus: int) -> int:
    """Sequences on the fullest GPU: a sequence is not divided."""
    return math.ceil(rows / gpus)


def computed_tokens(given: Inputs, rows: int) -> float:
    """Of so many sequences on a GPU, as trees: what a group's prompts share is computed once for each group."""
    own = given.prompt_tokens * (1 - given.shared) + given.response_tokens
    return rows * own + math.ceil(rows / (given.group * given.sequences)) * given.prompt_tokens * given.shared


def log_probs_s(given: Inputs, gpus: int) -> float:
    """One forward pass over all sequences."""
    all_rows = given.sessions * given.sequences
    rows = rows_of_a_gpu(all_rows, gpus)
    if given.log_prob_gpu_s is not None:
        return rows * given.log_prob_gpu_s / all_rows
    return computed_tokens(given, rows) * given.forward_s


def exchange_s(given: Inputs, rows: int, gpus: int) -> float:
    """FSDP2 gathers all weights (bfloat16) twice a micro-batch, over the network if there are several nodes."""
    rate = given.node_rate if gpus <= given.gpus_per_node else given.network_rate
    micro_batches = math.ceil(computed_tokens(given, rows) / given.budget)
    return micro_batches * 2 * 2 * given.weights * (gpus - 1) / gpus / (rate * given.network_share)


def update_s(given: Inputs, gpus: int) -> float:
    """All updates. Computing and gathering overlap, so the longer one counts."""
    all_rows = given.sessions * given.sequences
    rows = rows_of_a_gpu(all_rows / given.updates, gpus)
    computed = computed_tokens(given, rows) * given.forward_s * given.update_passes
    if given.update_gpu_s is not None:
        computed = rows * given.update_gpu_s / all_rows
    return given.updates * max(computed, exchange_s(given, rows, gpus))


def sync(given: Inputs, gpus: int) -> Step:
    """`ditto_sync`: all GPUs sample, until the slowest session has ended, then all train."""
    sampling = max(sampling_work_s(given, gpus), judge_work_s(given), slowest_session_s(given))
    return _step(given, gpus, sampling, gpus)


def colocate_async(given: Inputs, gpus: int) -> Step:
    """`ditto_colocate_async`: the same, but the next prompts are sampled while the slowest session runs."""
    return _step(given, gpus, max(sampling_work_s(given, gpus), judge_work_s(given)), gpus)


def separate_async(given: Inputs, gpus: int) -> Step | None:
    """`ditto_separate_async`: some nodes sample while the others train, in the best division. None: one node alone."""
    unit = given.gpus_per_node
    divisions = (
        _step(given, gpus, max(sampling_work_s(given, gpus - training), judge_work_s(given)), training)
        for training in range(unit, gpus, unit)
    )
    return min(divisions, key=lambda step: step.total, default=None)


def _step(given: Inputs, gpus: int, sampling: float, training: int) -> Step:
    log_probs, update = log_probs_s(given, training), update_s(given, training)
    trained = log_probs + update
    busy = sampling + trained if training == gpus else max(sampling, trained)
    return Step(gpus, sampling, log_probs, update, busy + given.sync_s + given.other_s, training)


def limit(given: Inputs, gpus: int) -> str:
    """What decides the length of the sampling in `ditto_sync`."""
    parts = {
        "GPUs": sampling_work_s(given, gpus),
        "judge": judge_work_s(given),
        "slowest session": slowest_session_s(given),
    }
    return max(parts, key=lambda name: parts[name])


def measured_parts(metrics: Path, gpus: int) -> dict[str, float]:
    """The medians of a run's phases, as inputs.

    Args:
        gpus: the number of GPUs of the run.

    Raises:
        BadSettings: the file has none of a phase.
    """
    lines = [json.loads(line) for line in metrics.read_text(encoding="utf-8").splitlines()]
    parts = {}
    for name, key in PHASES.items():
        seconds = [line[name] for line in lines if name in line]
        if not seconds:
            raise BadSettings(f"{metrics}: no line has {name}. Pass the metrics.jsonl of a training run.")
        parts[key] = statistics.median(seconds) * (1 if key == "sync_s" else gpus)
    return parts


def table(given: Inputs, gpus: Sequence[int]) -> Table:
    """Seconds of a step in each mode, and what they are made of."""
    shown = new_table(
        *(f"Seconds of a step of {given.sessions} sessions. Simulated, not measured.", "limited by"),
        *("GPUs", "sampling", "log-probs", "update", "sync", "share of linear", "colocate", "separate"),
        "train + sample",
    )
    first = sync(given, gpus[0])
    for number in gpus:
        step, separated = sync(given, number), separate_async(given, number)
        linear = first.total * first.gpus / (step.total * step.gpus)
        seconds = (step.sampling, step.log_probs, step.update, step.total)
        apart = ("", "")
        if separated is not None:
            division = f"{separated.training_gpus} + {separated.gpus - separated.training_gpus}"
            apart = (f"{separated.total:,.1f}", division)
        cells = (*(f"{part:,.1f}" for part in seconds), f"{linear:.0%}", f"{colocate_async(given, number).total:,.1f}")
        shown.add_row(limit(given, number), str(number), *cells, *apart)
    return shown


def inputs_table(given: Inputs) -> Table:
    """Every input with its source."""
    shown = Table("option", "value", "meaning", "source", title="Inputs")
    for each in fields(given):
        value = getattr(given, each.name)
        source = each.metadata["source"] if value == each.default else "given"
        number = "computed" if value is None else f"{value:,.6g}"
        shown.add_row(f"--{each.name.replace('_', '-')}", number, each.metadata["what"], source)
    return shown


@reports_errors
def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command."""
    parser = Parser(prog="python -m benchmarks.cluster", description=__doc__)
    parser.add_argument("--gpus", type=positive_int, nargs="+", default=list(GPUS), help="numbers of GPUs to simulate")
    parser.add_argument("--metrics", type=existing_file, help="metrics.jsonl of a run, for the measured parts")
    parser.add_argument("--metrics-gpus", type=positive_int, help="how many GPUs that run had")
    for each in fields(Inputs):
        kind = share if each.name == "shared" else positive_int if each.type == "int" else positive_float
        meaning = f"{each.metadata['what']} ({each.default}: {each.metadata['source']})".replace("%", "%%")
        parser.add_argument(f"--{each.name.replace('_', '-')}", type=kind, help=meaning)
    args = parser.parse_args(arguments)
    if (args.metrics is None) != (args.metrics_gpus is None):
        parser.error("--metrics and --metrics-gpus belong together")
    measured = measured_parts(args.metrics, args.metrics_gpus) if args.metrics else {}
    options = {each.name: getattr(args, each.name) for each in fields(Inputs)}
    given = replace(Inputs(), **{**measured, **{name: value for name, value in options.items() if value is not None}})
    console.print(table(given, sorted(args.gpus)), inputs_table(given))


if __name__ == "__main__":
    sys.exit(main())
