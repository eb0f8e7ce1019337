"""Measure the cost of evaluating a row, compared with a plain client and other harnesses, in one run.

    python -m benchmarks.evaluate [--rows 2000] [--repeats 5]

The same invented rows of one turn (HiToM) against the same local server of fixed latency, by

    ours          `soul evaluate`, all of it: journal, scores, table, samples.parquet, HTML report
    engine        the same as far as the numbers: without samples.parquet and the report
    plain         openai.AsyncOpenAI behind a semaphore, on the transport that ours uses (aiohttp); keeps nothing
    inspect_ai    a task with its own solver and scorer, `openai-api` provider

with the same number of requests in flight. Every contender runs in its own process, pinned to one core; the server has
another core. Contenders run in turns, every second round in reverse order. A few rows are evaluated before each clock
starts; CPU is user and system time of the contender's process.

Targets, as medians over the rounds: at latency 0 rows/s of ours over plain at least 0.9, over inspect_ai at least 5; at
--latency (50 ms) seconds of the engine over the bound at most 1.05. The bound is rows x latency / concurrency or
plain's CPU seconds for the rows, whichever is larger. Rows/s need idle cores: `waited` is the share of its time at
latency 0 in which a contender had no core; if it is far from 0 %, ignore rows/s. CPU per row is more robust.
"""

import json
import os
import statistics
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.server import served
from benchmarks.side_by_side import console, in_turns, new_table, output_of, print_load, spread
from soul.cli.arguments import non_negative_float, positive_int
from soul.cli.error_border import Parser, reports_errors
from soul.errors import RunFailed
from soul.examples.command import write as write_examples

ANSWER = "<answer>B</answer>"
WITHOUT_LATENCY = ("ours", "engine", "plain", "inspect_ai")
WITH_LATENCY = ("ours", "engine", "plain")
LEAST = {"plain": 0.9, "inspect_ai": 5.0}  # rows/s of ours over theirs
MOST_OVER_BOUND = 1.05


@dataclass(frozen=True)
class Run:
    """One measured run of a contender."""

    seconds: float
    cpu: float
    answered: int

    @property
    def rate(self) -> float:
        """Rows per second."""
        return self.answered / self.seconds

    @property
    def cpu_ms(self) -> float:
        """CPU milliseconds per row."""
        return 1000 * self.cpu / self.answered

    @property
    def waited(self) -> float:
        """The share of the time in which it did not run; without latency it can only have waited for a core."""
        return 1 - self.cpu / self.seconds


Rounds = Mapping[str, Sequence[Run]]


@dataclass(frozen=True)
class Work:
    """The same work for every contender: the file of rows, their number, and the requests in flight."""

    parquet: Path
    rows: int
    concurrency: int

    def command(self, name: str, url: str) -> list[str]:
        """The command line of a contender."""
        program = [sys.executable, "-m", "benchmarks.evaluate_contenders"]
        return [*program, name, url, str(self.parquet), str(self.concurrency)]


@contextmanager
def pinned(core: int | None) -> Iterator[None]:
    """Processes started inside this block run on this core only; None: on any core."""
    if core is None:
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def two_cores() -> tuple[int, int] | tuple[None, None]:
    """A core for the contender and one for the server; (None, None) if there are not two."""
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    return (cores[0], cores[-1]) if len(cores) > 1 else (None, None)


def measured(work: Work, name: str, url: str) -> Run:
    """Run one contender.

    Raises:
        RunFailed: it failed, or did not answer all rows.
    """
    run = Run(**json.loads(output_of(work.command(name, url)).splitlines()[-1]))
    if run.answered != work.rows:
        raise RunFailed(f"{name} answered {run.answered} of {work.rows} rows")
    return run


def rounds(work: Work, names: Sequence[str], latency: float, repeats: int) -> Rounds:
    """Run all contenders in turns."""
    runs: dict[str, list[Run]] = {name: [] for name in names}
    own_core, server_core = two_cores()
    with pinned(server_core), served(ANSWER, latency) as (url, _), pinned(own_core):
        for _, name in in_turns(names, repeats):
            runs[name].append(measured(work, name, url))
    return runs


def over(runs: Rounds, name: str) -> list[float]:
    """Rows/s of ours over another contender's, round by round."""
    return [ours.rate / theirs.rate for ours, theirs in zip(runs["ours"], runs[name], strict=True)]


def bound(runs: Rounds, rows: int, concurrency: int, latency: float) -> float:
    """Lower bound in seconds for any client of this SDK: the server's time, or the SDK's own CPU time."""
    return max(rows * latency / concurrency, statistics.median(run.cpu for run in runs["plain"]))


def verdicts(without: Rounds, with_latency: Rounds, work: Work, latency: float) -> list[tuple[str, float, bool]]:
    """Every target: its text, the measured number, whether it is met."""
    targets = []
    for name, least in LEAST.items():
        if name in without:
            ratio = statistics.median(over(without, name))
            targets.append((f"rows/s of ours over {name}, at least {least:g}", ratio, ratio >= least))
    seconds = statistics.median(run.seconds for run in with_latency["engine"])
    ratio = seconds / bound(with_latency, work.rows, work.concurrency, latency)
    title = f"{1000 * latency:g} ms: seconds of the engine over the bound, at most {MOST_OVER_BOUND:g}"
    return [*targets, (title, ratio, ratio <= MOST_OVER_BOUND)]


def show(runs: Rounds, title: str) -> None:
    """The table of one latency."""
    table = new_table(
        title, "contender", "rows/s", "CPU ms per row", "waited", "rows/s of ours over it", "CPU of it over ours"
    )
    for name, own in runs.items():
        cpu = [theirs.cpu / ours.cpu for ours, theirs in zip(runs["ours"], own, strict=True)]
        table.add_row(
            name,
            spread([run.rate for run in own], 0),
            spread([run.cpu_ms for run in own], 2),
            f"{statistics.median(run.waited for run in own):.0%}",
            spread(over(runs, name), 2),
            spread(cpu, 2),
        )
    console.print(table)


@reports_errors
def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark. Returns 0 if all targets are met, else 1."""
    parser = Parser(prog="python -m benchmarks.evaluate", description=__doc__)
    parser.add_argument("--rows", type=positive_int, default=2000)
    parser.add_argument("--concurrency", type=positive_int, default=64)
    parser.add_argument("--latency", type=non_negative_float, default=0.05)
    parser.add_argument("--repeats", type=positive_int, default=5)
    parser.add_argument("--only", nargs="+", choices=WITHOUT_LATENCY, default=WITHOUT_LATENCY, metavar="CONTENDER")
    args = parser.parse_args(arguments)
    names = [name for name in WITHOUT_LATENCY if name in (*args.only, *WITH_LATENCY)]
    if two_cores() == (None, None):
        console.print("Contender and server share one core: rows/s mean little.")
    with tempfile.TemporaryDirectory(prefix="evaluate-benchmark-") as folder:
        work = Work(Path(folder) / "hitom.parquet", args.rows, args.concurrency)
        write_examples(["hitom"], args.rows, work.parquet)
        without = rounds(work, names, 0.0, args.repeats)
        with_latency = rounds(work, WITH_LATENCY, args.latency, args.repeats)
    about = f"{args.rows} rows, {args.concurrency} in flight, median (quartiles) of {args.repeats}"
    show(without, f"Latency 0: {about}")
    show(with_latency, f"Latency {1000 * args.latency:g} ms: {about}")
    targets = verdicts(without, with_latency, work, args.latency)
    for title, ratio, met in targets:
        console.print(f"{'met   ' if met else 'MISSED'} {ratio:6.2f}  {title}", soft_wrap=True, highlight=False)
    print_load()
    return 0 if all(met for _, _, met in targets) else 1


if __name__ == "__main__":
    sys.exit(main())
