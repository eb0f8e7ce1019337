"""The run's limits, whatever the processes do: they finish, idle, die without a word and come back.

Promise under test: requests in flight over all living processes never exceed the cap, and none starts while they are
above it; who waits is let in, also where there are fewer slots than processes; slots are shared max-min fair; requests
and tokens a minute hold over every window; a rate of one call in ten seconds still serves eight processes.

Processes are real gates on a loop whose clock jumps (hours take a second), or a model of one that hypothesis drives.
"""

import asyncio
import random
from collections import Counter, deque
from dataclasses import dataclass, field

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from soul.judge.throttle.circuit_breaker import BreakerSettings
from soul.judge.throttle.local_gate import RequestGate
from soul.judge.throttle.shared_limits import HEARTBEAT_S, SILENT_S, EndpointLimits, Report, SharedLimits
from tests.soul.judge.throttle.jumping_time import simulate

DAY_S = 86400
NEVER = BreakerSettings(min_requests=10**9)


def limits_of(clock, cap=8, budget_usd=None, **more):
    return SharedLimits(
        {"endpoint": EndpointLimits("m at u", cap, **{"breaker": NEVER, **more})}, budget_usd, clock=clock
    )


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


# --- any order of events


@dataclass
class Model:
    """A process as the protocol allows it to be: it starts what its last grant covers, whenever it likes."""

    flying: int = 0
    waiting: int = 0
    slots: int = 0
    heard: float = 0.0
    waves: int = 0
    alive: bool = True
    outcomes: Counter = field(default_factory=Counter)

    @property
    def may_use(self):
        return max(self.flying, self.slots) if self.alive else 0


class AnyOrder(RuleBasedStateMachine):
    cap = 7

    def __init__(self):
        super().__init__()
        self.clock = Clock()
        self.limits = limits_of(self.clock, self.cap)
        self.processes = [Model() for _ in range(4)]

    def report(self, number):
        process = self.processes[number]
        before = process.may_use
        grant = self.limits.sync(
            Report(
                "endpoint",
                str(number),
                process.flying,
                process.waiting,
                outcomes=dict(process.outcomes),
                refused={process.waves: process.outcomes["rate_limit"]},
            )
        )
        process.outcomes.clear()
        process.waves = grant.waves
        process.slots, process.heard = grant.slots, self.clock.now
        cap = self.limits._endpoints["endpoint"].throttle.cap
        if sum(p.may_use for p in self.processes) > cap:  # it shrank: those in flight drain, and nobody gets more
            assert grant.slots <= process.flying and process.may_use <= before

    numbers = st.integers(0, 3)

    @rule(number=numbers, calls=st.integers(1, 12))
    def calls_arrive(self, number, calls):
        self.processes[number].waiting += calls

    @rule(number=numbers)
    def some_start(self, number):
        process = self.processes[number]
        while process.alive and process.waiting and process.flying < process.slots:
            process.waiting -= 1
            process.flying += 1

    @rule(number=numbers, share=st.floats(0, 1), limited=st.booleans())
    def some_end(self, number, share, limited):
        process = self.processes[number]
        ended = round(process.flying * share)
        process.flying -= ended
        process.outcomes["rate_limit" if limited else "ok"] += ended

    @rule(number=numbers)
    def one_reports(self, number):
        if self.processes[number].alive:
            self.report(number)

    @rule(number=numbers)
    def one_dies(self, number):
        self.processes[number] = Model(alive=False)

    @rule(number=numbers)
    def one_comes_back(self, number):
        if not self.processes[number].alive:
            self.processes[number] = Model(heard=self.clock.now)

    @rule(seconds=st.sampled_from([0.05, 1.0, 20.0, 40.0]))
    def time_passes(self, seconds):
        self.clock.now += seconds
        for number, process in enumerate(self.processes):
            if process.alive and self.clock.now - process.heard > SILENT_S - 41:  # it would have, long ago
                self.report(number)

    @invariant()
    def the_cap_holds(self):
        assert sum(p.flying for p in self.processes if p.alive) <= self.cap
        assert sum(p.may_use for p in self.processes) <= self.cap

    @precondition(lambda self: any(p.alive and p.waiting for p in self.processes))
    @rule()
    def all_is_served_once_it_may_end(self):
        """From wherever this has come, everything that waits gets through."""
        left = sum(p.waiting + p.flying for p in self.processes if p.alive)
        for _ in range(300 + 20 * left):  # the slots of a dead process are free after SILENT_S
            self.clock.now += 1.0 if self.clock.now % 1 else 0.5
            for number, process in enumerate(self.processes):
                if process.alive:
                    self.some_start(number)
                    process.outcomes["ok"] += process.flying
                    process.flying = 0
                    self.report(number)
            self.the_cap_holds()
            if not any(p.waiting for p in self.processes if p.alive):
                return
        raise AssertionError("calls wait for ever")


AnyOrder.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
test_in_any_order_of_events_the_cap_holds_and_all_get_through = AnyOrder.TestCase


# --- shares


def settle(limits, clock, demands, rounds=60, seed=0):
    """Processes with a constant backlog, whose calls end at random. Slots of each, averaged over the last rounds."""
    rng = random.Random(seed)
    flying, total = [0] * len(demands), [0] * len(demands)
    for turn in range(rounds * 2):
        for number in rng.sample(range(len(demands)), len(demands)):
            clock.now += 0.05 / len(demands)
            flying[number] -= sum(rng.random() < 0.5 for _ in range(flying[number]))
            grant = limits.sync(Report("endpoint", str(number), flying[number], demands[number] - flying[number]))
            flying[number] = max(flying[number], min(demands[number], grant.slots))
            assert sum(flying) <= limits._endpoints["endpoint"].throttle.cap
        if turn >= rounds:
            total = [t + f for t, f in zip(total, flying, strict=True)]
    return [t / rounds for t in total]


def max_min_fair(cap, demands):
    """The level to which the slots fill everyone up, by halving: nothing of the code under test."""
    low, high = 0.0, float(cap)
    for _ in range(60):
        level = (low + high) / 2
        low, high = (level, high) if sum(min(d, level) for d in demands) <= cap else (low, level)
    return [min(d, low) for d in demands]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 60), min_size=1, max_size=8), st.integers(8, 64), st.integers(0, 5))
@example([1, 1, 5], 8, 0)  # one slot is spare: two took it, and the third process had none
def test_slots_are_shared_max_min_fair(demands, cap, seed):
    clock = Clock()
    got = settle(limits_of(clock, cap), clock, demands, seed=seed)
    fair = max_min_fair(cap, demands)
    for mine, due in zip(got, fair, strict=True):
        assert abs(mine - due) <= 1.0, (got, fair)
    assert sum(got) >= 0.95 * min(cap, sum(demands))  # and nothing lies idle


@pytest.mark.parametrize("cap,processes", [(1, 2), (1, 5), (3, 4), (5, 8)])
def test_fewer_slots_than_processes_go_round(cap, processes):
    clock = Clock()
    got = settle(limits_of(clock, cap), clock, [100 - number for number in range(processes)], rounds=4000)
    assert min(got) > 0.7 * cap / processes, got
    assert sum(got) > 0.8 * cap, got


def test_a_backlog_gets_the_whole_cap_while_others_idle():
    clock = Clock()
    limits = limits_of(clock, 32)
    settle(limits, clock, [50, 50, 50, 50])
    for name in "123":
        limits.sync(Report("endpoint", name))
    flying = limits.sync(Report("endpoint", "0", 8, 100)).slots
    assert flying == 32


def test_one_who_comes_late_gets_his_share_as_calls_end():
    clock = Clock()
    limits = limits_of(clock, 8)
    assert limits.sync(Report("endpoint", "old", 0, 100)).slots == 8
    assert limits.sync(Report("endpoint", "new", 0, 100)).slots == 0
    grant = limits.sync(Report("endpoint", "old", 8, 100))
    assert grant.slots == 4 and grant.contended and grant.again_s < HEARTBEAT_S
    assert limits.sync(Report("endpoint", "old", 5, 100)).slots == 4  # three ended, and none of them was replaced
    assert limits.sync(Report("endpoint", "new", 0, 100)).slots == 3
    assert limits.sync(Report("endpoint", "old", 4, 100)).slots == 4
    assert limits.sync(Report("endpoint", "new", 3, 97)).slots == 4


def test_the_slots_of_the_dead_are_free_after_a_while_and_their_share_of_the_rest_at_once():
    clock = Clock()
    limits = limits_of(clock, 8)
    limits.sync(Report("endpoint", "a", 0, 50))
    limits.sync(Report("endpoint", "dead", 0, 50))
    limits.sync(Report("endpoint", "a", 4, 50))
    assert limits.sync(Report("endpoint", "dead", 0, 50)).slots == 4
    flying = {"a": 4, "b": 0}

    def ask(seconds):
        for _ in range(round(seconds / HEARTBEAT_S)):
            clock.now += HEARTBEAT_S
            for name, n in flying.items():
                flying[name] = max(n, limits.sync(Report("endpoint", name, n, 50)).slots)

    flying["a"] = 2  # two end; the dead one's four may still be in flight, the other four are for who is there
    clock.now += SILENT_S / 2
    limits.sync(Report("endpoint", "b", 0, 50))
    ask(3.0)
    assert flying == {"a": 2, "b": 2}
    ask(SILENT_S)
    assert flying == {"a": 4, "b": 4}


def test_the_dead_do_not_hold_the_only_slot_of_those_who_wait():
    clock = Clock()
    limits = limits_of(clock, 1)
    assert limits.sync(Report("endpoint", "a", 0, 5)).slots == 1
    limits.sync(Report("endpoint", "dead", 0, 50))  # waits, and is never heard of again
    clock.now += 20
    limits.sync(Report("endpoint", "a", 1, 5))
    clock.now += 1
    assert limits.sync(Report("endpoint", "a", 0, 5)).slots == 1


def test_a_429_in_one_process_pauses_and_lowers_the_cap_of_all_and_it_comes_back():
    clock = Clock()
    limits = limits_of(clock, 10)
    settle(limits, clock, [20, 20])
    limits.sync(Report("endpoint", "0", 3, 20, outcomes={"rate_limit": 2}, refused={0: 2}, retry_after_s=3.0))
    for number in ("0", "1", "new"):
        grant = limits.sync(Report("endpoint", number, {"0": 3, "1": 5}.get(number, 0), 20))
        assert (grant.slots, grant.waves) == (0, 1) and "it answers 429" in grant.reason.text
    limits.sync(Report("endpoint", "new"))
    clock.now += 3.2
    assert sum(settle(limits, clock, [20, 20])) == 8
    for _ in range(200):
        clock.now += 1
        limits.sync(Report("endpoint", "0", 4, 20, outcomes={"ok": 4}))
    assert sum(settle(limits, clock, [20, 20])) == pytest.approx(10, abs=0.5)


# --- over hours, with real gates


class Cluster:
    """Processes with a gate each, some milliseconds away from the limits they share."""

    def __init__(self, loop, processes, seed=0, **line):
        self.loop, self.rng = loop, random.Random(seed)
        self.limits = limits_of(loop.time, **line)
        self.gates = [RequestGate("endpoint", str(number), self.port(number)) for number in range(processes)]
        self.dead, self.flying, self.peak = set(), Counter(), 0
        self.started = deque()  # (time, process, tokens)

    def port(self, number):
        async def sync(report):
            await asyncio.sleep(self.rng.uniform(0.0005, 0.004))
            if number in self.dead:
                await asyncio.Event().wait()
            grant = self.limits.sync(report)
            await asyncio.sleep(self.rng.uniform(0.0005, 0.004))
            return grant

        return sync

    async def call(self, number, seconds, estimated=100.0, used=None):
        gate, used = self.gates[number], estimated if used is None else used
        await gate.enter(estimated)
        self.flying[number] += 1
        self.peak = max(self.peak, sum(n for name, n in self.flying.items() if name not in self.dead))
        self.started.append((self.loop.time(), number, used))
        await asyncio.sleep(seconds)
        self.flying[number] -= 1
        gate.leave("ok", estimated, used)

    def in_any_minute(self, of):
        """The most that started within 60 seconds."""
        most, total, window = 0.0, 0.0, deque()
        for at, _, tokens in self.started:
            window.append((at, of(tokens)))
            total += window[-1][1]
            while window[0][0] <= at - 60:
                total -= window.popleft()[1]
            most = max(most, total)
        return most


def test_one_call_gets_through_beside_a_backlog_that_never_ends():
    async def main(loop):
        cluster = Cluster(loop, 3, cap=1)
        crowd = [asyncio.create_task(cluster.call(number, 0.5)) for number in (0, 1) for _ in range(400)]
        await asyncio.sleep(10)
        start = loop.time()
        await cluster.call(2, 0.5)
        assert loop.time() - start < 10
        shares = Counter(number for at, number, _ in cluster.started if at > 0)
        assert shares[0] > 4 and shares[1] > 4  # they take turns
        await asyncio.gather(*crowd)
        assert cluster.peak == 1

    simulate(main, seconds=DAY_S)


@pytest.mark.parametrize(
    "cap,processes,line",
    [
        (8, 8, {"requests_per_minute": 6.0}),
        (64, 8, {"requests_per_minute": 6.0, "tokens_per_minute": 6000.0}),
        (64, 8, {"tokens_per_minute": 600.0}),
        (1, 4, {"requests_per_minute": 6.0}),
        (2, 4, {"requests_per_minute": 30.0, "tokens_per_minute": 300.0}),
    ],
)
def test_a_tiny_rate_serves_everyone(cap, processes, line):
    async def main(loop):
        cluster = Cluster(loop, processes, cap=cap, **line)
        await asyncio.gather(*(cluster.call(number, 3.0) for number in range(processes) for _ in range(2)))
        calls = 2 * processes
        slowest = max(calls / line.get("requests_per_minute", 1e9), 100.0 * calls / line.get("tokens_per_minute", 1e9))
        assert loop.time() < 60 * slowest * 1.1 + 3.0 * calls / cap + 30, loop.time()
        assert cluster.in_any_minute(lambda tokens: 1) <= line.get("requests_per_minute", 1e9) + 1 + processes

    simulate(main, seconds=DAY_S)


def test_one_whose_slots_are_all_busy_leaves_the_rate_to_the_others():
    async def main(loop):
        cluster = Cluster(loop, 2, cap=2, requests_per_minute=30.0)
        busy = [asyncio.create_task(cluster.call(0, 1000.0)) for _ in range(5)]
        await asyncio.gather(*(cluster.call(1, 1.0) for _ in range(8)))
        assert loop.time() < 40  # one of its own call and one of the other's each 2 s at worst
        for task in busy:
            task.cancel()

    simulate(main, seconds=DAY_S)


@pytest.mark.parametrize("seed,rates", enumerate([(600.0, None), (None, 60000.0), (240.0, 20000.0)]))
def test_rates_hold_over_every_minute(seed, rates):
    requests, tokens = rates

    async def main(loop):
        cluster = Cluster(loop, 5, seed, cap=40, requests_per_minute=requests, tokens_per_minute=tokens)
        rng = random.Random(seed)

        async def user(number):
            for _ in range(rng.randrange(10, 30)):
                estimated = rng.choice([20.0, 100.0, 400.0])
                await cluster.call(number, rng.expovariate(1.0), estimated, estimated * rng.uniform(0.5, 1.0))
                if rng.random() < 0.05:
                    await asyncio.sleep(rng.uniform(0, 30))

        await asyncio.gather(*(user(number) for number in range(5) for _ in range(8)))
        if requests is not None:
            assert cluster.in_any_minute(lambda tokens: 1) <= requests + requests / 60 + 5
        if tokens is not None:
            assert cluster.in_any_minute(lambda tokens: tokens) <= tokens + tokens / 60 + 5 * 400
        assert cluster.peak <= 40
        assert loop.time() > 75  # or there was but one minute to look at

    simulate(main, seconds=DAY_S)


@pytest.mark.parametrize("seed", range(6))
def test_processes_that_come_go_and_die(seed):
    async def main(loop):
        rng = random.Random(seed)
        cap = rng.choice([1, 3, 8, 20])
        cluster = Cluster(loop, 6, seed, cap=cap)
        doomed = set(rng.sample(range(6), 2))
        dying = {number: asyncio.Event() for number in doomed}

        async def live(number):
            for _ in range(rng.randrange(1, 4)):
                await asyncio.sleep(rng.uniform(0, 40))
                calls = rng.choice([1, 5, 60])
                await asyncio.gather(*(cluster.call(number, rng.expovariate(1.0)) for _ in range(calls)))

        async def die(number):
            await asyncio.sleep(rng.uniform(1, 60))
            cluster.dead.add(number)
            dying[number].set()

        tasks = [asyncio.create_task(live(number)) for number in range(6)]
        await asyncio.gather(*(die(number) for number in doomed))
        for number in doomed:
            tasks[number].cancel()
        await asyncio.gather(*(tasks[number] for number in range(6) if number not in doomed))
        assert cluster.peak <= cap

    simulate(main, seconds=DAY_S)
