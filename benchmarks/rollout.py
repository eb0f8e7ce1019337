"""Check that sessions only wait for their own calls: a batch of rollouts compared with its critical path.

    python -m benchmarks.rollout [--sessions 512] [--concurrency 64] [--seed 0] [--plot rollout.png]

Rows of Sotopia and CoSER (`soul.examples`) alternate. All sessions run at the same time in one thread, in two schedules
of the same work:

    driver     soul.session.run_session, as in training: a session goes on as soon as its own call is answered
    lockstep   the usual batched rollout, implemented here: all drafts, all verdicts, all feedback, all refined
               episodes, all verdicts; within episodes no session takes turn k + 1 before all have ended turn k

Every turn of the policy and every call of a partner, environment or judge takes a time drawn from a log-normal
distribution. It depends only on the seed, the session and the number of the call in its session, so both schedules
get the same latencies.

    chain          the sum of the latencies of one session, which never has two calls in flight
    critical path  the longest chain, or the latencies of all endpoint calls divided by the endpoint's cap if that is
                   longer (by default the cap admits every session, so the longest chain counts)
    least          the lower bound of a schedule: for the driver the critical path; for lockstep the sum of the same
                   bound over its steps

Goal: wall time of the driver over the critical path at most 1.10. This needs an idle core: the table shows how long the
process waited for one. (If the cap binds, waiting in the queue extends the longest chain: no goal.)

Calls go through the real gateway: judge, repeated questions, accounting, gate and cap. Only the SDK's HTTP layer is
left out, which leaves 0.5 ms CPU per call, including the task's own work. With --sdk the SDK's client uses an
in-process transport: 1.2 ms per call. 512 sessions then fill a core, unless the endpoints are as slow as real ones (for
example --policy 1 0.5 --endpoint 1.5 1; lockstep then takes about eight minutes).
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import math
import random
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, Literal, TypeVar

import openai

from benchmarks.judge import console, new_plot, new_table, print_load, save_plot
from soul import examples
from soul.cli.arguments import non_negative_float, output_file, positive_int
from soul.cli.error_border import Parser, reports_errors
from soul.examples.example import Example, Player, Style
from soul.judge import ANY_KEY, Gateway, Judge
from soul.message import Message
from soul.policy import Players
from soul.session import RefineSettings, run_session
from soul.task import Task
from soul.task_types import Episode, Row, Verdict
from soul.tasks.coser import CoSER
from soul.tasks.sotopia import Sotopia
from soul.testing import FakeOpenAI, Json, Text, scripted_players
from soul.testing.replies import ChatRequest, Reply
from soul.testing.server import IN_PROCESS_URL

# In both tasks a verdict is one call, so the calls of a session are sequential; CoSER's four critics would not be.
TASKS: dict[str, Callable[[], Task[Any]]] = {"sotopia": Sotopia, "coser": partial(CoSER, merged_dimensions=True)}
PATIENCE_S = 3600.0  # no drawn latency may time out
Kind = Literal["policy", "endpoint"]
Step = tuple[str, int]  # a phase of the schedule, and the turn within it
T = TypeVar("T")


@dataclass(frozen=True)
class Latency:
    """A log-normal distribution, by its median in seconds and its sigma."""

    median: float
    sigma: float

    def draw(self, seed: int, session: int, call: int) -> float:
        """The seconds of that call, independent of when it is made."""
        return random.Random(f"{seed}:{session}:{call}").lognormvariate(math.log(self.median), self.sigma)


@dataclass
class Lane:
    """One session: its row, its player, and its chain of latencies by the steps of the schedule."""

    number: int
    seed: int
    latencies: dict[Kind, Latency]
    style: Style = "oracle"
    step: Step = ("", 0)
    calls: int = 0
    seconds: dict[Step, float] = field(default_factory=lambda: defaultdict(float))
    endpoint_seconds: dict[Step, float] = field(default_factory=lambda: defaultdict(float))
    finished: float = math.nan

    def __post_init__(self) -> None:
        name = list(TASKS)[self.number % len(TASKS)]
        self.task = TASKS[name]()
        self.example: Example[Any] = examples.load(name)
        self.row: Row = self.example.row(self.number)
        self.player: Player = self.example.player(self.style, self.row, self.seed)

    def latency(self, kind: Kind) -> float:
        """Draw the seconds of the next call and add them to the chain."""
        seconds = self.latencies[kind].draw(self.seed, self.number, self.calls)
        self.calls += 1
        self.seconds[self.step] += seconds
        if kind == "endpoint":
            self.endpoint_seconds[self.step] += seconds
        return seconds

    def players(self, turn: Callable[[], Awaitable[None]] | None = None) -> Callable[..., Players]:
        """The policy at all seats. Each of its turns first waits for `turn`."""

        async def say(messages: Sequence[Message]) -> str:
            if turn is not None:
                await turn()
            await asyncio.sleep(self.latency("policy"))
            return self.player(messages)

        return scripted_players(say)


HERE: ContextVar[Lane] = ContextVar("HERE")  # the session that calls the endpoint


def answer(request: ChatRequest) -> Reply:
    """The endpoint's reply to a session, with its delay."""
    lane = HERE.get()
    reply = lane.example.reply(request)
    assert isinstance(reply, Text | Json), f"the example of {lane.example.name} has no answer to {request}"
    return replace(reply, delay=lane.latency("endpoint"))


class Sleeper(openai.AsyncOpenAI):
    """The SDK's client without its HTTP layer; an answer arrives after its delay."""

    def __init__(self) -> None:
        super().__init__(api_key=ANY_KEY, base_url=IN_PROCESS_URL)
        self._numbers = count()

    async def post(self, path: str, *, body: Any = None, **options: Any) -> Any:
        request = ChatRequest(next(self._numbers), body)
        response = answer(request).answer(request)
        await asyncio.sleep(response.delay)
        return response.body


def connected(cap: int, sdk: bool) -> Gateway:
    """The gateway of a run, with all roles at one in-process endpoint."""
    fake = FakeOpenAI(answer)
    settings = {"concurrency": cap, "structured": "json_schema", "timeout_s": PATIENCE_S, "deadline_s": PATIENCE_S}
    client = fake.client(PATIENCE_S) if sdk else Sleeper()
    return Gateway.from_judge(Judge.connect(fake.endpoint(**settings), client))


Rewards = list[tuple[float, float]]  # rewards of draft and refined episode, by session
Schedule = Callable[[Sequence[Lane], Gateway], Coroutine[Any, Any, Rewards]]


async def driver(lanes: Sequence[Lane], gateway: Gateway) -> Rewards:
    """Run all sessions at once with the real driver."""

    async def one(lane: Lane) -> tuple[float, float]:
        HERE.set(lane)
        done = await run_session(lane.task, lane.row, lane.players(), gateway, RefineSettings())
        lane.finished = time.perf_counter()
        if done.draft.verdict is None or done.refined is None or done.refined.verdict is None:
            raise RuntimeError(f"session {lane.number} failed: {done}")
        return done.draft.verdict.reward, done.refined.verdict.reward

    return await asyncio.gather(*map(one, lanes))


class Turns:
    """A barrier: no session takes its next turn before all remaining sessions have ended this one."""

    def __init__(self, parties: int) -> None:
        self._parties, self._waiting, self._open = parties, 0, asyncio.Event()

    async def next(self) -> None:
        """Wait for the other sessions."""
        gate, self._waiting = self._open, self._waiting + 1
        self._move_on()
        await gate.wait()

    def leave(self) -> None:
        """Take no more turns."""
        self._parties -= 1
        self._move_on()

    def _move_on(self) -> None:
        if self._waiting == self._parties:
            self._open.set()
            self._open, self._waiting = asyncio.Event(), 0


async def lockstep(lanes: Sequence[Lane], gateway: Gateway) -> Rewards:
    """Run all sessions phase by phase and turn by turn."""

    async def play(lane: Lane, turns: Turns, feedback: str | None) -> Episode:
        async def turn() -> None:
            await turns.next()
            lane.step = (lane.step[0], lane.step[1] + 1)

        return await lane.task.play(lane.row, replace(lane.players(turn)(), gateway=gateway), feedback)

    async def judge(lane: Lane, episode: Episode) -> Verdict:
        verdict = await lane.task.judge(lane.row, episode, gateway.judge)
        lane.finished = time.perf_counter()  # of the refined episode: it comes last
        return verdict

    async def advise(lane: Lane) -> str | None:
        return await lane.task.feedback(lane.row, drafts[lane.number], verdicts[lane.number], gateway.feedback)

    drafts = await _phase("draft", lanes, lambda lane, turns: play(lane, turns, None))
    verdicts = await _phase("verdict", lanes, lambda lane, _: judge(lane, drafts[lane.number]))
    advice = await _phase("feedback", lanes, lambda lane, _: advise(lane))
    refined = await _phase("refined", lanes, lambda lane, turns: play(lane, turns, advice[lane.number]))
    last = await _phase("refined verdict", lanes, lambda lane, _: judge(lane, refined[lane.number]))
    return [(before.reward, after.reward) for before, after in zip(verdicts, last, strict=True)]


async def _phase(name: str, lanes: Sequence[Lane], work: Callable[[Lane, Turns], Awaitable[T]]) -> list[T]:
    turns = Turns(len(lanes))

    async def one(lane: Lane) -> T:
        HERE.set(lane)
        lane.step = (name, 0)
        try:
            return await work(lane, turns)
        finally:
            turns.leave()

    return await asyncio.gather(*map(one, lanes))


def least(lanes: Sequence[Lane], cap: int) -> float:
    """Lower bound of a schedule's seconds: the sum over its steps of the longest chain, or of the time that the cap
    requires if that is longer. The driver has a single step."""
    steps = dict.fromkeys(step for lane in lanes for step in lane.seconds)
    longest = {step: max(lane.seconds.get(step, 0.0) for lane in lanes) for step in steps}
    capped = {step: sum(lane.endpoint_seconds.get(step, 0.0) for lane in lanes) / cap for step in steps}
    return sum(max(longest[step], capped[step]) for step in steps)


@dataclass(frozen=True)
class Run:
    """One schedule, measured."""

    wall: float
    cpu: float
    starved: float  # seconds in which this process was ready to run but had no core; nan if unknown
    least: float
    finished: Sequence[float]  # seconds from the start at which each session was done
    calls: Sequence[int]  # number of calls of each session
    rewards: Rewards


def measured(schedule: Schedule, arguments: argparse.Namespace) -> Run:
    """Run a schedule on new sessions."""
    latencies: dict[Kind, Latency] = {"policy": Latency(*arguments.policy), "endpoint": Latency(*arguments.endpoint)}
    cap = arguments.concurrency or arguments.sessions
    lanes = [Lane(number, arguments.seed, latencies, arguments.style) for number in range(arguments.sessions)]

    async def all_of_it() -> Run:
        gateway = connected(cap, arguments.sdk)
        gc.collect()
        start, cpu, starved = time.perf_counter(), time.process_time(), _starved()
        rewards = await schedule(lanes, gateway)
        wall, cpu, starved = time.perf_counter() - start, time.process_time() - cpu, _starved() - starved
        await gateway.close()
        finished, calls = [lane.finished - start for lane in lanes], [lane.calls for lane in lanes]
        return Run(wall, cpu, starved, least(lanes, cap), finished, calls, rewards)

    return asyncio.run(all_of_it())


def _starved() -> float:
    """Seconds that this thread has waited for a core so far."""
    try:
        return int(Path("/proc/thread-self/schedstat").read_text().split()[1]) / 1e9
    except OSError:  # not Linux
        return math.nan


def compare(arguments: argparse.Namespace) -> dict[str, Run]:
    """Both schedules.

    Raises:
        RuntimeError: they did different work, so their times cannot be compared.
    """
    warm_up = argparse.Namespace(**{**vars(arguments), "sessions": 4, "policy": (1e-6, 0), "endpoint": (1e-6, 0)})
    measured(driver, warm_up)  # imports and first uses
    runs = {"driver": measured(driver, arguments), "lockstep": measured(lockstep, arguments)}
    if runs["driver"].calls != runs["lockstep"].calls or runs["driver"].rewards != runs["lockstep"].rewards:
        raise RuntimeError("the schedules made different calls, or came to different verdicts")
    return runs


def show(runs: dict[str, Run], arguments: argparse.Namespace) -> None:
    """Print both schedules side by side."""
    critical, calls = runs["driver"].least, sum(runs["driver"].calls)
    table = new_table(
        f"{arguments.sessions} sessions of {' and '.join(TASKS)}, {calls:,} calls, latency's median and sigma: policy "
        f"{arguments.policy[0]:g} s, {arguments.policy[1]:g}; endpoint {arguments.endpoint[0]:g} s, "
        f"{arguments.endpoint[1]:g}",
        "schedule",
        *("wall s", "least s", "wall / critical", "half done s", "CPU s", "ms per call", "no core s"),
    )
    for name, run in runs.items():
        times = (f"{run.wall:.2f}", f"{run.least:.2f}", f"{run.wall / critical:.3f}")
        cpu = (f"{run.cpu:.2f}", f"{1000 * run.cpu / calls:.2f}", f"{run.starved:.2f}")
        table.add_row(name, *times, f"{statistics.median(run.finished):.2f}", *cpu)
    console.print(table)
    free, barrier = runs["driver"].wall, runs["lockstep"].wall
    console.print(
        f"Critical path {critical:.2f} s: driver {free / critical:.3f} of it (goal: at most 1.10), lockstep "
        f"{barrier / critical:.3f}; lockstep over driver {barrier / free:.2f}.",
        soft_wrap=True,
    )
    print_load()


def plot(file: Path, runs: dict[str, Run]) -> None:
    """Plot the number of finished sessions over time."""
    figure, axes = new_plot()
    for name, run in runs.items():
        axes.step([0.0, *sorted(run.finished)], range(len(run.finished) + 1), where="post", label=name)
    axes.axvline(runs["driver"].least, color="grey", linestyle=":", label="critical path")
    axes.set(xlabel="seconds", ylabel="sessions done")
    save_plot(figure, axes, file)


@reports_errors
def main(arguments: Sequence[str] | None = None) -> None:
    parser = Parser(prog="python -m benchmarks.rollout", description=__doc__)
    parser.add_argument("--sessions", type=positive_int, default=512)
    parser.add_argument("--concurrency", type=positive_int, help="the endpoint's cap (default: one call per session)")
    shape: dict[str, Any] = {"type": non_negative_float, "nargs": 2, "metavar": ("MEDIAN", "SIGMA")}
    parser.add_argument("--policy", **shape, default=(0.3, 0.5), help="seconds of a turn of the policy")
    parser.add_argument("--endpoint", **shape, default=(0.35, 1.0), help="seconds of a call of any other model")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--style", choices=["oracle", "random"], default="oracle", help="random: episodes of maximum length"
    )
    parser.add_argument("--sdk", action="store_true", help="use the SDK's own client on an in-process transport")
    parser.add_argument("--plot", type=output_file, help="write a plot to this file")
    args = parser.parse_args(arguments)
    runs = compare(args)
    show(runs, args)
    if args.plot:
        plot(args.plot, runs)


if __name__ == "__main__":
    sys.exit(main())
