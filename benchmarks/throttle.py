"""Measure lost verdicts and time at a throttled endpoint, ours compared with the plain SDK.

    python -m benchmarks.throttle verdicts [--only a d] [--window sliding]   # 400 verdicts at each of five limits
    python -m benchmarks.throttle evaluation                               # 200 samples, the whole command
    python -m benchmarks.throttle processes                                # two gateways that share one `SharedLimits`
    python -m benchmarks.throttle changes                                  # the limit changes during the run
    python -m benchmarks.throttle impossible                               # deadlines that cannot be met

The endpoint is `benchmarks.throttled_server`, in its own process. The five limits:

    a  8 in flight, Retry-After of 1 s       c  20 per second, Retry-After in seconds
    b  8 in flight, no header                d  20 per second, no header          e  20 per second, an HTTP date

`sdk` is openai.AsyncOpenAI with `max_retries=6` and as many concurrent tasks as our concurrency. `ours` is Judge.ask
with default settings. `best` is the shortest time in which the limit admits all requests. Goals: no verdict lost, and a
total time of at most 1.2 x best.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import openai
from rich.console import Console
from rich.table import Table

from benchmarks.evaluate_contenders import Work
from benchmarks.evaluate_contenders import ours as whole_command
from benchmarks.judge import ANSWER, INSTRUCTIONS, Scored, data, gateway, print_load
from benchmarks.throttled_server import Counts, Kind, Limit, throttled
from soul.cli.arguments import positive_float, positive_int
from soul.cli.error_border import Parser, reports_errors
from soul.errors import JudgeFailure
from soul.examples.__main__ import write
from soul.judge import Gateway, GatewaySettings
from soul.judge.call.structured import form_of, response_format
from soul.judge.gateway import run_limits
from soul.judge.throttle.local_gate import in_process

Ask = Callable[[int], Awaitable[Any]]
IN_FLIGHT_LATENCY, RATE_LATENCY = 0.2, 0.02
WORDS = 60
console = Console(width=140)


@dataclass(frozen=True)
class Outcome:
    """The result of one client at one limit."""

    lost: Counter[str]
    seconds: float
    counts: Counts


def limits(window: Kind) -> dict[str, tuple[Limit, float]]:
    """The five limits and the latency of their answers."""
    return {
        "a": (Limit("in_flight", 8, "seconds"), IN_FLIGHT_LATENCY),
        "b": (Limit("in_flight", 8), IN_FLIGHT_LATENCY),
        "c": (Limit(window, 20, "seconds"), RATE_LATENCY),
        "d": (Limit(window, 20), RATE_LATENCY),
        "e": (Limit(window, 20, "date"), RATE_LATENCY),
    }


async def ask_all(ask: Ask, calls: int) -> tuple[Counter[str], float]:
    """Ask all questions at once. Returns the lost verdicts by cause, and the seconds."""
    lost: Counter[str] = Counter()

    async def one(number: int) -> None:
        try:
            await ask(number)
        except JudgeFailure as failure:
            lost[failure.cause] += 1
        except openai.OpenAIError as error:
            lost[type(error).__name__] += 1

    start = time.perf_counter()
    await asyncio.gather(*map(one, range(calls)))
    return lost, time.perf_counter() - start


async def with_sdk(url: str, calls: int, concurrency: int) -> tuple[Counter[str], float]:
    """The plain SDK, with its own retries."""
    tasks, form = asyncio.Semaphore(concurrency), response_format(form_of(Scored), "json_schema")
    async with openai.AsyncOpenAI(api_key="EMPTY", base_url=url, max_retries=6) as client:

        async def ask(number: int) -> Scored:
            messages: Any = [
                {"role": "system", "content": INSTRUCTIONS},
                {"role": "user", "content": json.dumps(data(number, WORDS))},
            ]
            async with tasks:
                completion: Any = client.chat.completions.create
                answer = await completion(model="fixed", messages=messages, response_format=form)
            return Scored.model_validate_json(answer.choices[0].message.content or "")

        return await ask_all(ask, calls)


def connected(url: str, concurrency: int, gateways: int = 1, **settings: Any) -> list[Gateway]:
    """Gateways with default settings that share one `SharedLimits`."""
    section = {"model": "fixed", "base_url": url, "api_key_env": "none", "concurrency": concurrency, **settings}
    gateway_settings = GatewaySettings.from_sections({"judge": section})
    shared = in_process(run_limits(gateway_settings))
    return [Gateway.connect(gateway_settings, shared) for _ in range(gateways)]


async def with_ours(
    url: str, calls: int, concurrency: int, gateways: int = 1, **settings: Any
) -> tuple[Counter[str], float]:
    """Judge.ask with default settings."""
    connections = connected(url, concurrency, gateways, **settings)
    asks = [gateway(connection.judge, WORDS) for connection in connections]
    try:
        return await ask_all(lambda number: asks[number % gateways](number), calls)
    finally:
        for connection in connections:
            await connection.close()


CLIENTS = {"sdk": with_sdk, "ours": with_ours}


def table_of(title: str) -> Table:
    """The table that all trials print."""
    table = Table(title=title)
    table.add_column("limit")
    table.add_column("client")
    for column in ("lost", "seconds", "best", "ratio", "429s"):
        table.add_column(column, justify="right")
    table.add_column("causes")
    return table


def add(table: Table, limit: str, client: str, outcome: Outcome, best: float) -> None:
    """Add a line to the table."""
    lost, seconds = outcome.lost, outcome.seconds
    causes = ", ".join(f"{cause} {n}" for cause, n in lost.most_common())
    ratio = f"{seconds / best:.2f}" if best else "-"
    numbers = [str(lost.total()), f"{seconds:.1f}", f"{best:.1f}" if best else "-", ratio, str(outcome.counts.refused)]
    table.add_row(limit, client, *numbers, causes)


def in_words(limit: Limit) -> str:
    """A limit for people."""
    what = "in flight" if limit.kind == "in_flight" else f"per second ({limit.kind})"
    return f"{limit.amount:g} {what}, header: {limit.header}"


def run_verdicts(args: argparse.Namespace) -> None:
    """Verdicts at each of the five limits."""
    table = table_of(f"{args.calls} verdicts, {args.concurrency} at a time")
    for letter, (limit, latency) in limits(args.window).items():
        for name, client in CLIENTS.items():
            if letter not in args.only or name not in args.clients:
                continue
            with throttled(limit, latency, ANSWER) as (url, counts):
                lost, seconds = asyncio.run(client(url, args.calls, args.concurrency))
            best = limit.best_s(args.calls, latency)
            add(table, f"{letter}: {in_words(limit)}", name, Outcome(lost, seconds, counts), best)
    console.print(table)


def run_evaluation(args: argparse.Namespace) -> None:
    """`eval.sh api`'s command, model and judge at the same endpoint."""
    table = table_of(f"{args.samples} samples of an evaluation")
    limit, latency = limits(args.window)[args.limit]
    with tempfile.TemporaryDirectory(prefix="throttle-") as folder:
        rows = Path(folder) / "hitom.parquet"
        write(["hitom"], args.samples, rows)
        with throttled(limit, latency, "The answer is <answer>A</answer>") as (url, counts):
            work = Work(url, rows, args.concurrency, Path(folder) / "out")
            start = time.perf_counter()
            whole = whole_command(work)
            seconds = time.perf_counter() - start
    lost = Counter({"samples": args.samples - whole})
    best = limit.best_s(args.samples + 1, latency)  # the command sends one request before it begins
    add(table, in_words(limit), "evaluation", Outcome(+lost, seconds, counts), best)
    console.print(table)


def run_processes(args: argparse.Namespace) -> None:
    """Two gateways that share one `SharedLimits`."""
    table = table_of(f"{args.calls} verdicts, two gateways that share one SharedLimits")
    for letter, (limit, latency) in limits(args.window).items():
        if letter not in args.only:
            continue
        with throttled(limit, latency, ANSWER) as (url, counts):
            lost, seconds = asyncio.run(with_ours(url, args.calls, args.concurrency, gateways=2))
        outcome = Outcome(lost, seconds, counts)
        add(table, f"{letter}: {in_words(limit)}", "ours", outcome, limit.best_s(args.calls, latency))
    console.print(table)


def run_changes(args: argparse.Namespace) -> None:
    """The limit changes in the middle of a run."""
    table = table_of(f"{args.calls} verdicts, the limit changes after {args.change_s:g} s")
    pairs = [
        (Limit("in_flight", 16), Limit("in_flight", 4), IN_FLIGHT_LATENCY),
        (Limit("in_flight", 4), Limit("in_flight", 16), IN_FLIGHT_LATENCY),
        (Limit(args.window, 40, "seconds"), Limit(args.window, 10, "seconds"), RATE_LATENCY),
        (Limit(args.window, 10), Limit(args.window, 40), RATE_LATENCY),
    ]
    for first, then, latency in pairs:
        with throttled(first, latency, ANSWER, then, args.change_s) as (url, counts):
            lost, seconds = asyncio.run(with_ours(url, args.calls, args.concurrency))
        rates = [one.amount / (latency if one.kind == "in_flight" else 1.0) for one in (first, then)]
        at_first = min(args.calls, rates[0] * args.change_s)
        best = at_first / rates[0] + (args.calls - at_first) / rates[1]
        name = f"{in_words(first)}, then {then.amount:g}"
        add(table, name, "ours", Outcome(lost, seconds, counts), best)
    console.print(table)


def run_impossible(args: argparse.Namespace) -> None:
    """Deadlines that the endpoint makes impossible: typed failures, in time."""
    table = table_of("deadlines that cannot be met: every failure is rate_limit")
    closed = Limit("in_flight", 0)
    cases = [
        ("429 to everything, no header, deadline 10 s", closed, 10.0),
        ("429 to everything, Retry-After 2 s, deadline 10 s", Limit("in_flight", 0, "seconds", 2.0), 10.0),
        ("429 to everything, Retry-After 60 s, deadline 30 s", Limit("in_flight", 0, "seconds", 60.0), 30.0),
    ]
    for name, limit, deadline_s in cases:
        with throttled(limit, 0.02, ANSWER) as (url, counts):
            lost, seconds = asyncio.run(with_ours(url, 100, args.concurrency, deadline_s=deadline_s))
        add(table, name, "ours", Outcome(lost, seconds, counts), 0.0)
    console.print(table)


@reports_errors
def main(arguments: Sequence[str] | None = None) -> None:
    parser = Parser(prog="python -m benchmarks.throttle", description=__doc__)
    what = parser.add_subparsers(required=True)
    trials = {
        "verdicts": (run_verdicts, "lost verdicts and time at five limits, beside the plain SDK"),
        "evaluation": (run_evaluation, "an evaluation of samples by the whole command"),
        "processes": (run_processes, "two gateways that share one SharedLimits"),
        "changes": (run_changes, "the limit changes during the run"),
        "impossible": (run_impossible, "deadlines that cannot be met"),
    }
    for name, (run, about) in trials.items():
        trial = what.add_parser(name, help=about)
        trial.set_defaults(run=run)
        trial.add_argument("--calls", type=positive_int, default=400)
        trial.add_argument("--concurrency", type=positive_int, default=64)
        trial.add_argument("--window", choices=("sliding", "fixed", "bucket", "smooth"), default="sliding")
        trial.add_argument("--only", nargs="+", choices=list("abcde"), default=list("abcde"), help="limits")
        trial.add_argument("--clients", nargs="+", choices=list(CLIENTS), default=list(CLIENTS))
        trial.add_argument("--samples", type=positive_int, default=200, help="samples of the evaluation")
        trial.add_argument("--limit", choices=list("abcde"), default="d", help="limit of the evaluation")
        trial.add_argument("--change-s", type=positive_float, default=3.0, help="when the limit changes")
    args = parser.parse_args(arguments)
    args.run(args)
    print_load()


if __name__ == "__main__":
    sys.exit(main())
