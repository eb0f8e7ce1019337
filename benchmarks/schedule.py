"""Measure the time of a run with long and short sets, and the error of its estimate of the time left.

    python -m benchmarks.schedule [--short 240] [--long 48] [--latency 0.5] [--concurrency 8]

`soul.evaluate`'s engine takes the samples of HiToM (one turn) and Sotopia (up to twenty, with a partner) from one
FakeOpenAI server, whose answers take --latency seconds. It runs twice: once with the former schedule (all sets in
turns, time left computed from samples per second), and once with the current one
(agents/soul/evaluate/run/schedule.py). Each row of the table is one run. `tail` is the time at the end of the run in
which fewer samples run than allowed. The error of an estimate is the factor between it and the true time left.

The server shares the machine with the client, so choose a latency that is much longer than the CPU time of an answer;
otherwise both runs measure the machine. The target is an error of at most 1.5 after a fifth of the samples and of the
time.
"""

from __future__ import annotations

import asyncio
import math
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from unittest import mock

from rich.console import Console
from rich.table import Table

from soul.cli.arguments import non_negative_float, positive_int
from soul.cli.error_border import Parser, reports_errors
from soul.evaluate.run import engine
from soul.evaluate.run.journal import Journal
from soul.evaluate.run.schedule import EndpointOf, Schedule
from soul.evaluate.run.settings import EvaluationSettings, SampleRequest, sample_requests
from soul.examples.__main__ import write
from soul.examples.endpoint import answer
from soul.judge import Endpoint, GatewaySettings
from soul.testing import ChatRequest, FakeOpenAI, Reply, Text

UNDER_TEST = "under-test"
TURNS = 8  # of the policy in a scene, after which it leaves
MOST = 1.5


class InTurns(Schedule):
    """The former order (all sets in turns) and the former estimate (samples left over samples per second)."""

    def __init__(
        self,
        todo: Sequence[SampleRequest],
        at_once: int,
        endpoint_of: EndpointOf,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(todo, at_once, endpoint_of, clock)
        self._order = iter(todo)
        self._samples, self._taken, self._start = len(todo), 0, clock()

    def start(self) -> SampleRequest | None:
        item = next(self._order, None)
        if item is not None:
            one = self._sets[item.set]
            one.left.remove(item)
            one.running[item.key] = self._clock()
        return item

    def end(self, item: SampleRequest, usage: Any) -> None:
        super().end(item, usage)
        self._taken += 1

    def seconds_left(self) -> float | None:
        rate = self._taken / (self._clock() - self._start)
        return (self._samples - self._taken) / rate if self._taken else None


@dataclass
class Run:
    """The measurements of one run.

    Attributes:
        estimates: at the end of every sample: seconds since the start, and the estimated seconds left.
        tail_s: the time at the end of the run in which fewer samples ran than allowed.
    """

    at_once: int
    estimates: list[tuple[float, float | None]] = field(default_factory=list)

    @property
    def total_s(self) -> float:
        return self.estimates[-1][0]

    @property
    def tail_s(self) -> float:
        return self.total_s - self.estimates[-min(self.at_once, len(self.estimates))][0]

    def error_after(self, samples: float = 0.0, of_time: float = 0.0) -> float:
        """The factor between the expected time and the truth, at the first sample after this share of the run.

        It is infinite where the run was too short for an estimate.
        """
        for when, left in self.estimates[int(samples * len(self.estimates)) :]:
            if when >= of_time * self.total_s and left and when < self.total_s:
                truth = self.total_s - when
                return max(left, truth) / min(left, truth)
        return math.inf


def script(latency: float) -> Any:
    """Answers that take this many seconds; in a scene the policy leaves after TURNS turns."""

    def reply(request: ChatRequest) -> Reply:
        if request.body["model"] != UNDER_TEST:
            return replace(answer(request), delay=latency)  # type: ignore[type-var]
        own = sum(message["role"] == "assistant" for message in request.messages)
        scene = '{"action_type": "speak", "argument": "I see, and what would you do about it?"}'
        leave = '{"action_type": "leave", "argument": ""}'
        if len(request.messages) == 1:
            return Text("<answer>B</answer>", delay=latency)
        return Text(leave if own >= TURNS else scene, delay=latency)

    return reply


@contextmanager
def rows(short: int, long: int) -> Iterator[dict[str, Path]]:
    """Write both sets to files."""
    with tempfile.TemporaryDirectory() as folder:
        sets = {"hitom": Path(folder) / "hitom.parquet", "sotopia": Path(folder) / "sotopia.parquet"}
        for (name, path), count in zip(sets.items(), (short, long), strict=True):
            write([name], count, path)
        yield sets


def measured(sets: dict[str, Path], latency: float, concurrency: int, kind: type[Schedule]) -> Run:
    """Run one evaluation with this kind of schedule."""
    with FakeOpenAI(script(latency)) as fake, tempfile.TemporaryDirectory() as folder:
        gateway = GatewaySettings.from_sections({"judge": {"base_url": fake.url, "api_key_env": "none"}})
        policy = Endpoint(model=UNDER_TEST, base_url=fake.url, api_key_env=None, concurrency=concurrency)
        settings = EvaluationSettings(policy=policy, gateway=gateway, sets=sets)
        run, schedules = Run(engine.SESSIONS_PER_SLOT * concurrency), list[Schedule]()
        journal = Journal(Path(folder))
        start = time.monotonic()

        def ended(sample: engine.Sample) -> None:
            run.estimates.append((time.monotonic() - start, schedules[0].seconds_left()))

        with mock.patch.object(engine, "Schedule", kind):
            asyncio.run(
                engine.evaluate(settings, sample_requests(settings), journal, Path(folder), ended, schedules.append)
            )
        journal.close()
    return run


@reports_errors
def main(arguments: Sequence[str] | None = None) -> None:
    parser = Parser(prog="python -m benchmarks.schedule", description=__doc__)
    parser.add_argument("--short", type=positive_int, default=240, help="rows of one turn")
    parser.add_argument("--long", type=positive_int, default=48, help="rows of twenty turns")
    parser.add_argument("--latency", type=non_negative_float, default=0.5, help="seconds of an answer")
    parser.add_argument("--concurrency", type=positive_int, default=8, help="requests to the policy in flight")
    args = parser.parse_args(arguments)
    table = Table(title=f"{args.short} samples of one turn, {args.long} of {TURNS + 1} turns and a partner's {TURNS}")
    for column in ("", "seconds", "tail", "error at 20 % of samples", "error at 20 % of time"):
        table.add_column(column, justify="right" if column else "left")
    runs = {}
    with rows(args.short, args.long) as sets:
        for name, kind in {"before": InTurns, "now": Schedule}.items():
            runs[name] = run = measured(sets, args.latency, args.concurrency, kind)
            errors = run.error_after(samples=0.2), run.error_after(of_time=0.2)
            table.add_row(name, f"{run.total_s:.1f}", f"{run.tail_s:.1f}", *(f"{error:.2f}" for error in errors))
    Console().print(table)
    print(f"now / before: {runs['now'].total_s / runs['before'].total_s:.2f} of the time")
    worst = max(runs["now"].error_after(samples=0.2), runs["now"].error_after(of_time=0.2))
    print(f"error of the expected time: {worst:.2f}, target at most {MOST}: {'met' if worst <= MOST else 'missed'}")


if __name__ == "__main__":
    sys.exit(main())
