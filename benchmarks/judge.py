"""Measure the cost of the judge gateway beside a plain openai client with a semaphore.

    python -m benchmarks.judge [--latency 1.0 0]

It uses a local server of fixed latency in its own process, and runs two clients in turns, every second round in
reverse order. Both have twice as many askers as the cap admits (an asker sends its next
question when the last is answered, as a session does), and the askers start at the pace of cap / latency. Both send the
same questions and read answers with the same pydantic schema:

    plain      openai.AsyncOpenAI behind an asyncio.Semaphore: no retries, no cache, no accounting, no checks
    gateway    Judge.ask, all questions distinct, cache on (so every call is looked up and written), limits on:
               the cap, and far more requests and tokens per minute than needed

Goals: requests/s of gateway over plain at least 0.95 (if the endpoint is the bottleneck); own CPU below 1 ms per call.
The steady state is a run without its first two waves and its last wave of `cap` answers. Latency 0 shows the client's
own work and has no goal. Requests/s need idle cores: on a busy machine both clients stay below cap / latency.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import itertools
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import openai
from pydantic import BaseModel, Field

from benchmarks.server import served
from benchmarks.side_by_side import console, in_turns, new_table, print_load, spread
from soul.cli.arguments import non_negative_float, positive_int
from soul.cli.error_border import Parser, reports_errors
from soul.judge import Gateway, GatewaySettings, Judge
from soul.judge.call.structured import form_of, response_format

ANSWER = '{"score": 7, "critique": "The reply is kind, but it never says what to do next. Name one concrete step."}'
INSTRUCTIONS = (
    "You judge how well a reply helps the person who wrote the message. Score it from 0 (useless or harmful) to 10 "
    "(no expert would do better), and criticise it in two sentences addressed to its author: what is good, and what to "
    "do better."
)


WAVES_LEFT_OUT, MIN_WAVES = 3, 4
ASKERS = 2  # times the cap: when one call is answered, the next is already waiting


class Scored(BaseModel):
    score: int = Field(ge=0, le=10)
    critique: str


@dataclass(frozen=True)
class Run:
    """One measured run: CPU seconds of this process, and when each answer was read (seconds from the start)."""

    cpu: float
    answered: Sequence[float]

    @property
    def rate(self) -> float:
        """Requests per second over the whole run, including ramp-up and tail."""
        return len(self.answered) / self.answered[-1]

    @property
    def cpu_ms(self) -> float:
        """CPU milliseconds per call."""
        return 1000 * self.cpu / len(self.answered)

    def steady_rate(self, cap: int) -> float:
        """Requests per second from the end of the second wave of `cap` answers to the end of the second-last wave."""
        waves = len(self.answered) // cap
        return (waves - WAVES_LEFT_OUT) * cap / (self.answered[(waves - 1) * cap - 1] - self.answered[2 * cap - 1])


Ask = Callable[[int], Awaitable[Scored]]


async def timed(ask: Ask, numbers: Sequence[int], cap: int, spread_s: float = 0.0) -> Run:
    """Ask the questions.

    Args:
        cap: half the number of askers.
        spread_s: time in which the first `cap` askers start; the others follow at the same pace.
    """
    answered: list[float] = []
    left = iter(numbers)

    async def asker(position: int) -> None:
        await asyncio.sleep(spread_s * position / cap)
        for number in left:
            await ask(number)
            answered.append(time.perf_counter())

    gc.collect()
    start, cpu = time.perf_counter(), time.process_time()
    await asyncio.gather(*map(asker, range(ASKERS * cap)))
    cpu = time.process_time() - cpu
    return Run(cpu, [at - start for at in answered])


def data(number: int, words: int) -> dict[str, Any]:
    """Question `number`; all questions differ."""
    return {"message": f"Case {number}: I lost my job.", "reply": " ".join(f"word{i % 97}" for i in range(words))}


def plain(judge: Judge, concurrency: int, words: int) -> Ask:
    """The SDK and a semaphore, on the SDK's faster HTTP client."""
    gate = asyncio.Semaphore(concurrency)
    http = openai.DefaultAioHttpClient(limits=type(openai.DEFAULT_CONNECTION_LIMITS)(max_connections=0))
    client = openai.AsyncOpenAI(api_key="EMPTY", base_url=judge.endpoint.url, max_retries=0, http_client=http)
    form: Any = response_format(form_of(Scored), "json_schema")

    async def ask(number: int) -> Scored:
        messages: list[Any] = [
            {"role": "system", "content": INSTRUCTIONS},
            {"role": "user", "content": json.dumps(data(number, words), ensure_ascii=False, indent=1)},
        ]
        async with gate:
            answer = await client.chat.completions.create(model="fixed", messages=messages, response_format=form)
        return Scored.model_validate_json(answer.choices[0].message.content or "")

    return ask


def gateway(judge: Judge, words: int) -> Ask:
    """The gateway, with separate counters for each question as in a session."""

    async def ask(number: int) -> Scored:
        question = data(number, words)
        return await judge.scope().ask(Scored, INSTRUCTIONS, question, policy_texts=[question["reply"]], min_words=3)

    return ask


@asynccontextmanager
async def connected(url: str, concurrency: int) -> Any:
    """A gateway as in a run: cache in a file, all limits on, everything in this process."""
    settings: dict[str, Any] = {"model": "fixed", "base_url": url, "api_key_env": "none", "structured": "json_schema"}
    settings |= {"price_in": 0.05, "price_out": 0.4, "concurrency": concurrency}
    settings |= {"requests_per_minute": 100 * 60 * 2_000, "tokens_per_minute": 100 * 60 * 2_000 * 1_000}
    with tempfile.TemporaryDirectory(prefix="judge-benchmark-") as folder:
        connection = Gateway.connect(GatewaySettings.from_sections({"judge": settings}), cache_dir=Path(folder))
        try:
            yield connection
        finally:
            await connection.close()


async def both_clients(
    url: str, concurrency: int, calls: int, latency: float, arguments: argparse.Namespace
) -> dict[str, list[Run]]:
    """Both clients, in turns, after a warm-up that opens the connections."""
    words = arguments.words
    numbers = itertools.count()
    runs: dict[str, list[Run]] = {"plain": [], "gateway": []}
    async with connected(url, concurrency) as connection:
        asks = {"plain": plain(connection.judge, concurrency, words), "gateway": gateway(connection.judge, words)}
        for ask in asks.values():
            await timed(ask, list(itertools.islice(numbers, concurrency)), concurrency)
        for _, name in in_turns(asks, arguments.repeats):
            batch = list(itertools.islice(numbers, calls))
            runs[name].append(await timed(asks[name], batch, concurrency, latency))
    return runs


def run_compare(arguments: argparse.Namespace) -> None:
    """Requests/s and CPU of both clients, at every latency."""
    cap = arguments.concurrency
    table = new_table(
        f"{arguments.calls} calls at concurrency {cap}, median (quartiles) of {arguments.repeats}",
        "latency s",
        *("client", "requests/s", "steady requests/s", "CPU ms per call"),
    )
    lines = []
    for latency in arguments.latency:
        with served(ANSWER, latency) as (url, _):
            runs = asyncio.run(both_clients(url, cap, arguments.calls, latency, arguments))
        for name, own in runs.items():
            rates, steady = [run.rate for run in own], [run.steady_rate(cap) for run in own]
            cpu = [run.cpu_ms for run in own]
            table.add_row(f"{latency:g}", name, spread(rates, 1), spread(steady, 1), spread(cpu, 3))
        table.add_section()
        pairs = list(zip(runs["plain"], runs["gateway"], strict=True))
        busy = statistics.median(run.cpu / run.answered[-1] for run in runs["gateway"])
        lines.append(
            f"latency {latency:g} s, this process {busy:.0%} busy: gateway over plain, requests/s "
            f"{spread([ours.rate / theirs.rate for theirs, ours in pairs], 3)}, steady "
            f"{spread([ours.steady_rate(cap) / theirs.steady_rate(cap) for theirs, ours in pairs], 3)}"
            f"{' (goal: at least 0.95)' if latency else ''}; own CPU, ms per call "
            f"{spread([ours.cpu_ms - theirs.cpu_ms for theirs, ours in pairs], 3)} (goal: below 1)"
        )
    console.print(table)
    for line in lines:
        console.print(line, soft_wrap=True)
    print_load()


@reports_errors
def main(arguments: Sequence[str] | None = None) -> None:
    parser = Parser(prog="python -m benchmarks.judge", description=__doc__)
    parser.add_argument("--calls", type=positive_int, default=2048)
    parser.add_argument("--concurrency", type=positive_int, default=256)
    parser.add_argument("--latency", type=non_negative_float, nargs="+", default=[1.0, 0.0])
    parser.add_argument("--repeats", type=positive_int, default=8)
    parser.add_argument("--words", type=positive_int, default=150, help="words of the judged text")
    args = parser.parse_args(arguments)
    if args.calls < MIN_WAVES * args.concurrency:
        parser.error(
            f"--calls {args.calls}: a steady state needs {MIN_WAVES} times the concurrency, {args.concurrency}"
        )
    run_compare(args)


if __name__ == "__main__":
    sys.exit(main())
