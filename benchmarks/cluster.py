"""Simulate the time of a training step on 8 to 512 GPUs, to plan a cluster. Simulated, not measured.

    python -m benchmarks.cluster                                              # the paper's recipe, all defaults
    python -m benchmarks.cluster --metrics outputs/run/metrics.jsonl --metrics-gpus 8   # parts from a run of yours
    python -m benchmarks.cluster --prompts 512 --updates 8 --figure cluster.svg

Without --metrics the parts are computed from data sheets and from assumed shares of what the hardware can do. Every
input is an option; the table after the result lists them all with their sources. With --metrics, sampling, log-probs,
update and sync are the medians of a run, and scale as the arithmetic in benchmarks/cluster_model.py says.

Not in the arithmetic: start-up, validation, checkpoints, long prompts' attention, stragglers among nodes, failures, the
limits of an object store or a queue, offloading. No GPU has been compared with it.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.cluster_model import Inputs, Step, colocate_async, limit, separate_async, sources, sync
from soul.cli.arguments import existing_file, output_file, positive_float, positive_int, share
from soul.cli.error_border import Parser, reports_errors
from soul.errors import BadSettings

GPUS = (8, 16, 32, 64, 128, 256, 512)
NOTE = "Simulated, not measured."
# Metric of a run -> the input that it sets; those of the first kind are seconds of all the run's GPUs.
OF_ALL_GPUS = {
    "timing_s/gen": "gen_gpu_s",
    "timing_s/old_log_prob": "log_prob_gpu_s",
    "timing_s/update_actor": "update_gpu_s",
}
OF_A_STEP = {"timing_s/update_weights": "sync_s"}


def measured_parts(metrics: Path, gpus: int) -> dict[str, float]:
    """The medians of a run's phases, as inputs.

    Args:
        gpus: on how many the run was.

    Raises:
        BadSettings: the file has none of a phase.
    """
    lines = [json.loads(line) for line in metrics.read_text(encoding="utf-8").splitlines()]
    parts = {}
    for name, key in {**OF_ALL_GPUS, **OF_A_STEP}.items():
        seconds = [line[name] for line in lines if name in line]
        if not seconds:
            raise BadSettings(f"{metrics}: no line has {name}. Name the metrics.jsonl of a training.")
        parts[key] = statistics.median(seconds) * (gpus if name in OF_ALL_GPUS else 1)
    return parts


def results(given: Inputs, gpus: Sequence[int]) -> list[tuple[Step, Step, Step | None]]:
    """Of each number of GPUs: the step in each of the three modes."""
    return [(sync(given, n), colocate_async(given, n), separate_async(given, n)) for n in gpus]


def table(given: Inputs, rows: Sequence[tuple[Step, Step, Step | None]]) -> Table:
    """Seconds of a step, and what they are made of."""
    shown = Table(title=f"Seconds of a step of {given.sessions} sessions. {NOTE}")
    columns = (
        "GPUs",
        "sampling",
        "limited by",
        "log-probs",
        "update",
        "sync",
        "share of linear",
        "colocate",
        "separate",
    )
    for name in (*columns, "train + sample"):
        shown.add_column(name, justify="left" if name == "limited by" else "right")
    first = rows[0][0]
    for step, colocated, separated in rows:
        linear = first.total * first.gpus / (step.total * step.gpus)
        parts = (f"{step.sampling:,.1f}", limit(given, step.gpus), f"{step.log_probs:,.1f}", f"{step.update:,.1f}")
        apart = ("", "")
        if separated is not None:
            division = f"{separated.training_gpus} + {separated.gpus - separated.training_gpus}"
            apart = (f"{separated.total:,.1f}", division)
        shown.add_row(str(step.gpus), *parts, f"{step.total:,.1f}", f"{linear:.0%}", f"{colocated.total:,.1f}", *apart)
    return shown


def inputs_table(given: Inputs) -> Table:
    """Every input with its source."""
    shown = Table(title="Inputs")
    for name in ("option", "value", "meaning", "source"):
        shown.add_column(name, justify="right" if name == "value" else "left")
    for row in sources(given):
        shown.add_row(*row)
    return shown


def draw(rows: Sequence[tuple[Step, Step, Step | None]], file: Path) -> None:
    """A picture of the step times over the number of GPUs."""
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "ditto"  # the same numbers give the same file
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(6.4, 4.0), layout="constrained")
    curves: Mapping[str, list[Step | None]] = {
        "ditto_sync": [row[0] for row in rows],
        "ditto_colocate_async": [row[1] for row in rows],
        "ditto_separate_async": [row[2] for row in rows],
    }
    for name, steps in curves.items():
        there = [step for step in steps if step is not None]
        axes.plot([step.gpus for step in there], [step.total for step in there], marker="o", markersize=3, label=name)
    first = rows[0][0]
    ideal = [first.total * first.gpus / step.gpus for step, *_ in rows]
    axes.plot([step.gpus for step, *_ in rows], ideal, linestyle=":", color="gray", label="linear")
    gpus = [step.gpus for step, *_ in rows]
    axes.set(xscale="log", yscale="log", xlabel="GPUs", ylabel="seconds of a step", title=NOTE)
    axes.set_xticks(gpus, [str(n) for n in gpus])
    axes.minorticks_off()
    axes.grid(alpha=0.25)
    axes.legend(frameon=False)
    figure.savefig(file, metadata={"Date": None} if file.suffix == ".svg" else None)
    pyplot.close(figure)


@reports_errors
def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command."""
    parser = Parser(prog="python -m benchmarks.cluster", description=__doc__)
    parser.add_argument("--gpus", type=positive_int, nargs="+", default=list(GPUS), help="numbers of GPUs to simulate")
    parser.add_argument("--metrics", type=existing_file, help="metrics.jsonl of a run, for the measured parts")
    parser.add_argument("--metrics-gpus", type=positive_int, help="how many GPUs that run had")
    parser.add_argument("--figure", type=output_file, help="draw a picture (.svg, .png, .pdf)")
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
    rows = results(given, sorted(args.gpus))
    console = Console(width=max(140, Console().width))
    console.print(table(given, rows))
    console.print(inputs_table(given))
    if args.figure:
        draw(rows, args.figure)
        print(f"{args.figure}: written")


if __name__ == "__main__":
    sys.exit(main())
