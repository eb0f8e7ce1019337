"""Measure lost verdicts and time at a throttled endpoint.

    python -m benchmarks.throttle verdicts [--only a d] [--window sliding]   # one gateway, beside the plain SDK
    python -m benchmarks.throttle gateways                                 # two gateways in one process

The endpoint is `benchmarks.server`, in its own process. 400 verdicts at each of five limits:

    a  8 in flight, Retry-After of 1 s       c  20 per second, Retry-After in seconds
    b  8 in flight, no header                d  20 per second, no header          e  20 per second, an HTTP date

`sdk` is openai.AsyncOpenAI with `max_retries=6` and as many concurrent tasks as our concurrency. `ours` is Judge.ask
with default settings. `best` is the shortest time in which the limit admits all requests. Goals: no verdict lost; a
total time of at most 1.2 x best.
"""

import argparse
import asyncio
import json
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

import openai

from benchmarks.judge import ANSWER, INSTRUCTIONS, Scored, data, gateway
from benchmarks.server import Kind, Limit, served
from benchmarks.side_by_side import console, new_table, print_load
from soul.cli.arguments import positive_int
from soul.cli.error_border import Parser, reports_errors
from soul.errors import JudgeFailure
from soul.judge import Gateway, GatewaySettings
from soul.judge.call.structured import form_of, response_format

Ask = Callable[[int], Awaitable[Any]]
IN_FLIGHT_LATENCY, RATE_LATENCY = 0.2, 0.02
WORDS = 60


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


async def with_ours(url: str, calls: int, concurrency: int, gateways: int = 1) -> tuple[Counter[str], float]:
    """Judge.ask with default settings."""
    section = {"model": "fixed", "base_url": url, "api_key_env": "none", "concurrency": concurrency}
    settings = GatewaySettings.from_sections({"judge": section})
    connections = [Gateway.connect(settings) for _ in range(gateways)]
    asks = [gateway(connection.judge, WORDS) for connection in connections]
    try:
        return await ask_all(lambda number: asks[number % gateways](number), calls)
    finally:
        for connection in connections:
            await connection.close()


CLIENTS = {
    "verdicts": {"sdk": with_sdk, "ours": with_ours},
    "gateways": {"two gateways": partial(with_ours, gateways=2)},
}


def run(args: argparse.Namespace) -> None:
    """Verdicts at each of the five limits."""
    title = f"{args.calls} verdicts, {args.concurrency} at a time"
    table = new_table(title, "limit, client", "lost", "seconds", "best", "ratio", "429s", "causes")
    for letter, (limit, latency) in limits(args.window).items():
        for name, client in CLIENTS[args.trial].items():
            if letter not in args.only or name not in args.clients:
                continue
            with served(ANSWER, latency, limit) as (url, counts):
                lost, seconds = asyncio.run(client(url, args.calls, args.concurrency))
            best = limit.best_s(args.calls, latency)
            what = "in flight" if limit.kind == "in_flight" else f"per second ({limit.kind})"
            numbers = f"{seconds:.1f}", f"{best:.1f}", f"{seconds / best:.2f}", str(counts.refused)
            causes = ", ".join(f"{cause} {count}" for cause, count in lost.most_common())
            first = f"{letter}: {limit.amount:g} {what}, header: {limit.header}; {name}"
            table.add_row(first, str(lost.total()), *numbers, causes)
    console.print(table)


@reports_errors
def main(arguments: Sequence[str] | None = None) -> None:
    parser = Parser(prog="python -m benchmarks.throttle", description=__doc__)
    names = [name for clients in CLIENTS.values() for name in clients]
    parser.add_argument("trial", choices=list(CLIENTS))
    parser.add_argument("--calls", type=positive_int, default=400)
    parser.add_argument("--concurrency", type=positive_int, default=64)
    parser.add_argument("--window", choices=("sliding", "fixed", "bucket", "smooth"), default="sliding")
    parser.add_argument("--only", nargs="+", choices=list("abcde"), default=list("abcde"), help="limits")
    parser.add_argument("--clients", nargs="+", choices=names, default=names)
    args = parser.parse_args(arguments)
    run(args)
    print_load()


if __name__ == "__main__":
    sys.exit(main())
