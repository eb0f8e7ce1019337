"""Measure the cost of the judge gateway, and how the time of a step's judging depends on its cap.

    python -m benchmarks.judge compare [--latency 1.0 0]           # against a plain openai client with a semaphore
    python -m benchmarks.judge cap     [--concurrency 16 64 256]   # requests/s over cap / latency
    python -m benchmarks.judge sweep   [--plot sweep.png]          # the real driver at caps from 4 to 128

All use a local server of fixed latency in its own process, whose maximum rate is printed first. `compare` and `cap` run
two clients in turns, every second round in reverse order. Both clients have twice as many askers as the cap admits (an
asker sends its next question when the last is answered, as a session does), and the askers start at the pace of cap /
latency. Both send the same questions over the same HTTP client and read answers with the same pydantic schema:

    plain      openai.AsyncOpenAI behind an asyncio.Semaphore: no retries, no cache, no accounting, no checks
    gateway    Judge.ask, all questions distinct, cache on (so every call is looked up and written), limits on:
               the cap, and far more requests and tokens per minute than needed

Goals: requests/s of gateway over plain at least 0.95 (if the endpoint is the bottleneck); own CPU below 1 ms per call;
requests/s over cap / latency at least 0.97 in the steady state. The steady state is a run without its first two waves
and its last wave of `cap` answers. Latency 0 shows the client's own work and has no goal. Requests/s need idle cores:
on a busy machine both clients stay below cap / latency. With --burst all askers start at once. As the latency is
constant, they then stay in step, and every round trip waits for the CPU of all of them: no client exceeds latency /
(latency + cap x CPU per call) of cap / latency.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import itertools
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, Field
from rich.console import Console
from rich.table import Table

from benchmarks.fixed_latency_server import maximum_rate, served
from soul.cli.arguments import non_negative_float, output_file, positive_int
from soul.cli.error_border import Parser, reports_errors
from soul.judge import Gateway, GatewaySettings, Judge
from soul.judge.call.structured import form_of, response_format
from soul.message import Message
from soul.policy import Players
from soul.session import RefineSettings, run_session
from soul.task import Task
from soul.task_types import Episode, Metric, Row, Verdict
from soul.testing import scripted_players

ANSWER = '{"score": 7, "critique": "The reply is kind, but it never says what to do next. Name one concrete step."}'
INSTRUCTIONS = (
    "You judge how well a reply helps the person who wrote the message. Score it from 0 (useless or harmful) to 10 "
    "(no expert would do better), and criticise it in two sentences addressed to its author: what is good, and what to "
    "do better."
)
ROUND_TRIPS = 3  # calls of a session in `sweep`, one after another: the draft's score, its critique, the refined score
WAVES_LEFT_OUT, MIN_WAVES = 3, 4
ASKERS = 2  # times the cap: when one call is answered, the next is already waiting
console = Console()


class Scored(BaseModel):
    score: int = Field(ge=0, le=10)
    critique: str


class Advice(BaseModel):
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
    """The SDK and a semaphore, with the gateway's own HTTP client."""
    client, gate = judge.endpoint_client.client, asyncio.Semaphore(concurrency)
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
    settings = {
        "model": "fixed",
        "base_url": url,
        "api_key_env": "none",
        "concurrency": concurrency,
        "requests_per_minute": 100 * 60 * 2_000,
        "tokens_per_minute": 100 * 60 * 2_000 * 1_000,
        "structured": "json_schema",
        "price_in": 0.05,
        "price_out": 0.4,
    }
    with tempfile.TemporaryDirectory(prefix="judge-benchmark-") as folder:
        connection = Gateway.connect(GatewaySettings.from_sections({"judge": settings}), cache_dir=Path(folder))
        try:
            yield connection
        finally:
            await connection.close()


async def in_turns(
    url: str, concurrency: int, calls: int, latency: float, arguments: argparse.Namespace
) -> dict[str, list[Run]]:
    """Both clients, in turns, after a warm-up that opens the connections."""
    words, spread_s = arguments.words, 0.0 if arguments.burst else latency
    numbers = itertools.count()
    runs: dict[str, list[Run]] = {"plain": [], "gateway": []}
    async with connected(url, concurrency) as connection:
        asks = {"plain": plain(connection.judge, concurrency, words), "gateway": gateway(connection.judge, words)}
        for ask in asks.values():
            await timed(ask, list(itertools.islice(numbers, concurrency)), concurrency)
        for turn in range(arguments.repeats):
            for name in list(asks)[:: -1 if turn % 2 else 1]:
                batch = list(itertools.islice(numbers, calls))
                runs[name].append(await timed(asks[name], batch, concurrency, spread_s))
    return runs


def spread(values: Sequence[float], digits: int) -> str:
    """Median and quartiles."""
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive") if len(values) > 1 else [*values] * 3
    return f"{middle:,.{digits}f} ({low:,.{digits}f} to {high:,.{digits}f})"


def new_table(title: str, first: str, *columns: str) -> Table:
    """A table whose first column is text and whose others are numbers."""
    table = Table(title=title)
    table.add_column(first)
    for column in columns:
        table.add_column(column, justify="right")
    return table


def check_server(calls: int) -> None:
    """Print the server's maximum rate, to show that it does not limit the results."""
    most = maximum_rate(ANSWER, requests=10 * max(calls, 100))
    console.print(f"The server answers at least {most:,.0f} requests/s (latency 0, a minimal client).")


def print_load() -> None:
    """Print how busy the machine was, this benchmark included."""
    console.print(f"Load average of the last minutes: {os.getloadavg()[1]:.1f} on {os.cpu_count()} cores.")


def run_compare(arguments: argparse.Namespace) -> None:
    """Requests/s and CPU of both clients, at every latency."""
    cap = arguments.concurrency
    check_server(arguments.calls)
    table = new_table(
        f"{arguments.calls} calls at concurrency {cap}, median (quartiles) of {arguments.repeats}",
        "latency s",
        *("client", "requests/s", "steady requests/s", "CPU ms per call"),
    )
    lines = []
    for latency in arguments.latency:
        with served(ANSWER, latency) as url:
            runs = asyncio.run(in_turns(url, cap, arguments.calls, latency, arguments))
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


def run_cap(arguments: argparse.Namespace) -> None:
    """Requests/s over cap / latency, in the steady state and with ramp-up and tail."""
    check_server(max(arguments.concurrency))
    table = new_table(
        f"Requests/s over cap / latency, ratios as median (quartiles) of {arguments.repeats}",
        "client",
        *("calls", "cap", "latency s", "cap / latency", "steady requests/s"),
        *("steady ratio", "ratio of the whole run", "CPU ms per call"),
    )
    for cap, latency in itertools.product(arguments.concurrency, arguments.latency):
        calls = arguments.calls or 12 * cap
        with served(ANSWER, latency) as url:
            runs = asyncio.run(in_turns(url, cap, calls, latency, arguments))
        for name, own in runs.items():
            steady = [run.steady_rate(cap) for run in own]
            table.add_row(
                *(name, f"{calls}", f"{cap}", f"{latency:g}", f"{cap / latency:,.1f}"),
                f"{statistics.median(steady):,.1f}",
                spread([rate * latency / cap for rate in steady], 3),
                spread([run.rate * latency / cap for run in own], 3),
                f"{statistics.median(run.cpu_ms for run in own):.2f}",
            )
        table.add_section()
    console.print(table)
    console.print("Goal: a steady ratio of the gateway of at least 0.97.")
    print_load()


class Helping(Task[Row]):
    """A task of one turn: the judge scores the reply, and criticises it in a second call."""

    name = "helping"
    row_type = Row
    headline = Metric("score", low=0.0, high=10.0)
    calls_per_feedback = 1.0

    def prompt(self, row: Row, feedback: str | None = None) -> list[Message]:
        return [{"role": "user", "content": f"Case {row.index}: I lost my job. {feedback or ''}"}]

    async def play(self, row: Row, players: Players, feedback: str | None) -> Episode:
        prompt = self.prompt(row, feedback)
        reply = await players.policy().say(prompt)
        return Episode({"policy": [*prompt, {"role": "assistant", "content": reply}]})

    async def judge(self, row: Row, episode: Episode, judge: Judge) -> Verdict:
        shown = {"row": row.index, "reply": episode.answer}
        scored = await judge.ask(Scored, INSTRUCTIONS, shown, policy_texts=[episode.answer], min_words=3)
        return Verdict(scored.score, {"score": scored.score}, scored.critique)

    async def feedback(self, row: Row, episode: Episode, verdict: Verdict, judge: Judge) -> str:
        shown = {"row": row.index, "reply": episode.answer, "score": verdict.reward}
        return (await judge.ask(Advice, "Advise the author how to do better.", shown)).critique


async def one_step(url: str, cap: int, sessions: int, words: int) -> tuple[float, int]:
    """Seconds and number of judge requests for one step's sessions with this cap."""

    def policy(messages: Sequence[Message]) -> str:  # the refined reply differs because its prompt does
        return messages[-1]["content"] + data(0, words)["reply"]

    task = Helping()
    async with connected(url, cap) as connection:
        start = time.perf_counter()
        done = await asyncio.gather(
            *(
                run_session(task, Row(index=i), scripted_players(policy), connection, RefineSettings())
                for i in range(sessions)
            )
        )
        seconds = time.perf_counter() - start
    if not all(session.refined and session.refined.valid for session in done):
        raise RuntimeError(f"a session failed: {next(s for s in done if not (s.refined and s.refined.valid))}")
    return seconds, sum(usage.requests for session in done for usage in session.usage.values())


def run_sweep(arguments: argparse.Namespace) -> None:
    """Measure the seconds of a step at each cap."""
    latency, caps = arguments.latency, arguments.concurrency
    check_server(arguments.sessions)
    seconds: dict[int, list[float]] = {cap: [] for cap in caps}
    calls = 0
    with served(ANSWER, latency) as url:
        asyncio.run(one_step(url, max(caps), 2, arguments.words))  # imports and first uses
        for turn in range(arguments.repeats):
            for cap in caps[:: -1 if turn % 2 else 1]:
                took, calls = asyncio.run(one_step(url, cap, arguments.sessions, arguments.words))
                seconds[cap].append(took)
    step = {cap: statistics.median(values) for cap, values in seconds.items()}
    expected = {cap: calls * latency / cap for cap in caps}
    table = new_table(
        f"Judging of one step: {arguments.sessions} sessions, {calls} calls of {latency:g} s, {ROUND_TRIPS} in a row "
        f"per session (so never below {ROUND_TRIPS * latency:g} s), median (quartiles) of {arguments.repeats}",
        "cap",
        *("step s", "calls x latency / cap", "step over the longer bound", "gain on the row above"),
    )
    for before, cap in zip([None, *caps], caps, strict=False):
        bound = max(expected[cap], ROUND_TRIPS * latency)
        gain = f"{step[before] / step[cap]:.2f}x" if before else ""
        row = (spread(seconds[cap], 2), f"{expected[cap]:.2f}", f"ratio {step[cap] / bound:.3f}", gain)
        table.add_row(f"{cap}", *row)
    console.print(table)
    best = min(step.values())
    enough = min(cap for cap in caps if step[cap] <= 1.05 * best)
    console.print(f"Caps above {enough} gain less than 5 %: {step[enough]:.2f} s, best {best:.2f} s.")
    if arguments.plot:
        plot(arguments.plot, step, expected, ROUND_TRIPS * latency)


def plot(file: Path, step: dict[int, float], expected: dict[int, float], floor: float) -> None:
    """Draw a step's seconds by cap, with both bounds."""
    figure, axes = new_plot()
    axes.loglog(list(step), list(step.values()), "o-", label="measured")
    axes.loglog(list(expected), list(expected.values()), "--", label="calls x latency / cap")
    axes.axhline(floor, color="grey", linestyle=":", label=f"{ROUND_TRIPS} calls one after another")
    axes.set_xticks(list(step), [str(cap) for cap in step], minor=False)
    axes.minorticks_off()
    axes.set(xlabel="judge.concurrency", ylabel="seconds of judging a step")
    save_plot(figure, axes, file)


def new_plot() -> tuple[Any, Any]:
    """Figure and axes; needs no display."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    return pyplot.subplots(figsize=(7, 4), layout="constrained")


def save_plot(figure: Any, axes: Any, file: Path) -> None:
    """Add the legend and write the file."""
    axes.legend()
    figure.savefig(file, dpi=150)
    console.print(f"plot: {file}")


@reports_errors
def main(arguments: Sequence[str] | None = None) -> None:
    parser = Parser(prog="python -m benchmarks.judge", description=__doc__)
    what = parser.add_subparsers(required=True)
    compare = what.add_parser("compare", help="against a plain client: requests/s and CPU")
    compare.add_argument("--calls", type=positive_int, default=2048)
    compare.add_argument("--concurrency", type=positive_int, default=256)
    compare.add_argument("--latency", type=non_negative_float, nargs="+", default=[1.0, 0.0])
    compare.add_argument("--repeats", type=positive_int, default=8)
    compare.set_defaults(run=run_compare)
    cap = what.add_parser("cap", help="requests/s over cap / latency")
    cap.add_argument("--calls", type=positive_int, help="calls per run (default: 12 times the cap)")
    cap.add_argument("--concurrency", type=positive_int, nargs="+", default=[16, 64, 256])
    cap.add_argument("--latency", type=non_negative_float, nargs="+", default=[1.0])
    cap.add_argument("--repeats", type=positive_int, default=3)
    cap.set_defaults(run=run_cap)
    for command in (compare, cap):
        command.add_argument("--burst", action="store_true", help="all askers start at once")
    sweep = what.add_parser("sweep", help="a step's judging by the judge's cap, with the real driver")
    sweep.add_argument("--sessions", type=positive_int, default=128)
    sweep.add_argument("--concurrency", type=positive_int, nargs="+", default=[4, 8, 16, 32, 64, 128])
    sweep.add_argument("--latency", type=non_negative_float, default=0.5)
    sweep.add_argument("--repeats", type=positive_int, default=2)
    sweep.add_argument("--plot", type=output_file, help="write a plot to this file")
    sweep.set_defaults(run=run_sweep)
    for command in (compare, cap, sweep):
        command.add_argument("--words", type=positive_int, default=150, help="words of the judged text")
    args = parser.parse_args(arguments)
    if args.run is not run_sweep and args.calls:
        most = args.concurrency if args.run is run_compare else max(args.concurrency)
        if args.calls < MIN_WAVES * most:
            parser.error(f"--calls {args.calls}: a steady state needs {MIN_WAVES} times the concurrency, {most}")
    args.run(args)


if __name__ == "__main__":
    sys.exit(main())
