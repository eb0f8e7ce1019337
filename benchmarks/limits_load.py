"""Load the actor that holds the run's judge limits: its cost, the waits of calls, and whether workers get equal shares.

    python -m benchmarks.limits_load [--workers 64] [--processes 4] [--seconds 10] [--only slow fast rate]

The actor is the one of a training (`ditto.judging.limits`, on real Ray). Each worker is a request gate with a name of
its own, as an agent-loop worker has it; several of them share a process here, because 64 processes would measure this
machine's scheduler. A call is a wait of random length in place of a request to a judge.

    slow    512 calls at a time, of about 4 s each: a large run with a reasoning judge. Goal: the actor takes below 20 %
            of a core.
    fast    512 calls at a time, of about 0.1 s each: at most 5,000 admitted calls a second
    rate    600 requests a minute, far below what the workers ask for

`wait` is the time between asking and being admitted. `Jain` is Jain's index of the calls admitted for each worker: 1 if
all got the same, 1/n if one of n got everything; `at best` is the index of the most even split of so many calls, which
is below 1 where they are few. `at once` is the largest number of calls that were in flight at one time, over all
processes, and the cap, which it must not exceed. `actor` is the share of a core that it took. Before the trials, the
CPU time of one report is measured in this process, without Ray, once the circuit breaker's window holds `--window`
reports.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import random
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import psutil
import ray

from benchmarks.judge import console, new_table, print_load
from ditto.judging import limits as judge_limits
from soul.cli.arguments import positive_float, positive_int
from soul.cli.error_border import Parser, reports_errors
from soul.judge import GatewaySettings
from soul.judge.gateway import limits_by_key, run_limits
from soul.judge.throttle.local_gate import RequestGate
from soul.judge.throttle.shared_limits import Grant, Report, SharedLimits

GOAL = 0.2  # of a core
TOKENS = 100.0  # of a call


class Call(NamedTuple):
    """When a call asked to be admitted, was admitted, and ended; one clock for all processes."""

    asked: float
    admitted: float
    ended: float


@dataclass(frozen=True)
class Trial:
    """A load.

    Attributes:
        role: the role of the gateway whose endpoint has these limits.
        demand: how many calls all workers together want in flight.
    """

    role: str
    concurrency: int
    call_s: float
    demand: int
    requests_per_minute: int | None = None

    @property
    def section(self) -> dict[str, Any]:
        """The role's section of the config."""
        limits = {"concurrency": self.concurrency, "requests_per_minute": self.requests_per_minute}
        return {"model": self.role, "base_url": "http://127.0.0.1:9/v1", "api_key_env": "none", **limits}


TRIALS = {
    "slow": Trial("judge", 512, 4.0, 768),
    "fast": Trial("feedback", 512, 0.1, 768),
    "rate": Trial("partner", 512, 1.0, 256, requests_per_minute=600),
}


@dataclass
class Outcome:
    """What came of a trial: the calls of each worker, the reports to the actor, and its CPU seconds."""

    calls: list[list[Call]]
    reports: int
    actor_cpu_s: float
    seconds: float


@ray.remote(num_cpus=0)
class WorkerProcess:
    """A process with several workers."""

    async def ready(self) -> None:
        """Returns once the process has started and imported its modules."""

    async def run(
        self, key: str, trial: Trial, names: Sequence[str], callers: int, seconds: float
    ) -> tuple[list[list[Call]], int]:
        """Let each worker's callers make one call after the other; returns the calls by worker, and the reports."""
        sync, reports = judge_limits.port(), 0

        async def counting(report: Report) -> Grant:
            nonlocal reports
            reports += 1
            return await sync(report)

        calls: list[list[Call]] = [[] for _ in names]
        stop = time.monotonic() + seconds
        tasks = [
            asyncio.create_task(_call_until(stop, gate, trial.call_s, log))
            for gate, log in ((RequestGate(key, name, counting), log) for name, log in zip(names, calls, strict=True))
            for _ in range(callers)
        ]
        await asyncio.wait(tasks, timeout=seconds + 2 * trial.call_s)
        for task in tasks:
            task.cancel()  # it still waits to be admitted
        await asyncio.gather(*tasks, return_exceptions=True)
        return calls, reports


async def _call_until(stop: float, gate: RequestGate, call_s: float, log: list[Call]) -> None:
    await asyncio.sleep(random.uniform(0.0, min(call_s, 1.0)))
    while (asked := time.monotonic()) < stop:
        await gate.enter(TOKENS)
        admitted = time.monotonic()
        await asyncio.sleep(call_s * random.uniform(0.5, 1.5))
        log.append(Call(asked, admitted, time.monotonic()))
        gate.leave("ok", TOKENS, TOKENS)


def actor_process() -> psutil.Process:
    """The process of the limits' actor, by the title that Ray gives it."""
    children = psutil.Process(os.getpid()).children(recursive=True)
    return next(child for child in children if " ".join(child.cmdline()).startswith("ray::_Limits"))


def run_trial(trial: Trial, key: str, workers: int, processes: int, seconds: float) -> Outcome:
    """Run a trial with fresh worker processes."""
    names = [f"worker{number}" for number in range(workers)]
    remotes = [WorkerProcess.remote() for _ in range(processes)]
    ray.get([remote.ready.remote() for remote in remotes])
    actor = actor_process()
    before, start = sum(actor.cpu_times()[:2]), time.monotonic()
    callers = max(1, trial.demand // workers)
    parts = [remote.run.remote(key, trial, names[i::processes], callers, seconds) for i, remote in enumerate(remotes)]
    results = ray.get(parts)
    cpu_s, took = sum(actor.cpu_times()[:2]) - before, time.monotonic() - start
    for remote in remotes:
        ray.kill(remote)
    return Outcome([log for logs, _ in results for log in logs], sum(n for _, n in results), cpu_s, took)


def report_cost_s(limits: SharedLimits, key: str, workers: int, window: int) -> float:
    """CPU seconds of one report by one of many workers, after `window` reports."""
    reports = [
        Report(key, f"worker{number}", 8, 4, tokens_waiting=4 * TOKENS, outcomes={"ok": 1}) for number in range(workers)
    ]
    for number in range(window):
        limits.sync(reports[number % workers])
    start, times = time.process_time(), 100
    for number in range(times):
        limits.sync(reports[number % workers])
    return (time.process_time() - start) / times


def jain(counts: Sequence[int]) -> float:
    """Jain's fairness index."""
    return sum(counts) ** 2 / (len(counts) * sum(count**2 for count in counts)) if any(counts) else 1.0


def most_even(total: int, workers: int) -> float:
    """Jain's index of the most even split of so many calls."""
    return jain([total // workers + (number < total % workers) for number in range(workers)])


def at_once(calls: Sequence[Call]) -> int:
    """The largest number of calls in flight at one time; one that ends as another begins does not count."""
    events = sorted([(call.ended, -1) for call in calls] + [(call.admitted, 1) for call in calls])
    return max(itertools.accumulate(change for _, change in events), default=0)


@reports_errors
def main(arguments: Sequence[str] | None = None) -> int:
    """Run the trials; returns 1 if a cap was exceeded or the goal is missed."""
    parser = Parser(prog="python -m benchmarks.limits_load", description=__doc__)
    parser.add_argument("--workers", type=positive_int, default=64)
    parser.add_argument("--processes", type=positive_int, default=4, help="processes that the workers share")
    parser.add_argument("--seconds", type=positive_float, default=10.0, help="during which calls begin")
    parser.add_argument("--window", type=positive_int, default=4000, help="reports before one is timed")
    parser.add_argument("--only", nargs="+", choices=list(TRIALS), default=list(TRIALS))
    args = parser.parse_args(arguments)
    print_load()
    settings = GatewaySettings.from_sections({trial.role: trial.section for trial in TRIALS.values()})
    keys = {limits.name.split(" ")[0]: key for key, limits in limits_by_key(settings).items()}
    cost_s = report_cost_s(run_limits(settings), keys["judge"], args.workers, args.window)
    console.print(f"A report takes {1e6 * cost_s:,.0f} µs of CPU time, after {args.window:,} others.")
    ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False, configure_logging=False)
    columns = ("trial", "calls/s", "wait p50", "p99 ms", "Jain", "at best", "at once", "reports/s", "actor")
    table, missed = new_table(f"{args.workers} workers in {args.processes} processes", *columns), False
    try:
        _actor = judge_limits.start(settings, 0.0)  # it lives as long as this reference
        for name in args.only:
            trial = TRIALS[name]
            outcome = run_trial(trial, keys[trial.role], args.workers, args.processes, args.seconds)
            calls = [call for log in outcome.calls for call in log]
            waits = statistics.quantiles([1e3 * (call.admitted - call.asked) for call in calls], n=100)
            share, peak = outcome.actor_cpu_s / outcome.seconds, at_once(calls)
            missed |= peak > trial.concurrency or (name == "slow" and share > GOAL)
            table.add_row(
                name,
                f"{len(calls) / outcome.seconds:,.0f}",
                f"{waits[49]:,.0f}",
                f"{waits[98]:,.0f}",
                f"{jain([len(log) for log in outcome.calls]):.2f}",
                f"{most_even(len(calls), args.workers):.2f}",
                f"{peak}/{trial.concurrency}",
                f"{outcome.reports / outcome.seconds:,.0f}",
                f"{share:.1%}",
            )
    finally:
        ray.shutdown()
    console.print(table)
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
