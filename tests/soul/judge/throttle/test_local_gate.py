"""A process's door to an endpoint: who waits is let through in time, once and for all, whatever happens around him.

Promise under test: what is really in flight never exceeds the cap, over several gates and with limits that are in
process, far away or out of reach; no caller is forgotten; a cancelled caller leaves nothing behind; an outage or a
spent budget reaches all who wait; idle gates hold nothing; and the cap is used to the full.

Most tests run on a loop whose clock jumps to the next event, so they measure time exactly and on any machine.
"""

import asyncio
import random
from collections import Counter

import pytest

from soul.errors import JudgeFailure
from soul.judge.throttle.circuit_breaker import BreakerSettings
from soul.judge.throttle.local_gate import RequestGate, in_process
from soul.judge.throttle.shared_limits import POLL_S, EndpointLimits, SharedLimits
from tests.soul.judge.throttle.jumping_time import simulate


def far(limits, rng, low=0.01, high=0.05):
    """Limits in another process on a busy cluster."""

    async def sync(report):
        await asyncio.sleep(rng.uniform(low, high) / 2)
        grant = limits.sync(report)
        await asyncio.sleep(rng.uniform(low, high) / 2)
        return grant

    return sync


class Fleet:
    """Gates that share their limits, and what really is in flight over all of them."""

    def __init__(self, loop, cap, gates=1, port=None, seed=0, budget_usd=None, **line):
        self.loop, self.cap = loop, cap
        self.rng = random.Random(seed)
        self.limits = SharedLimits({"endpoint": EndpointLimits("m at u", cap, **line)}, budget_usd, clock=loop.time)
        self.reports = 0
        self.gates = [
            RequestGate("endpoint", f"p{number}", self.counted(port or in_process)) for number in range(gates)
        ]
        self.flying, self.peak, self.outcomes = 0, 0, Counter()

    def counted(self, port):
        sync = port(self.limits, self.rng) if port is far or port is flaky else port(self.limits)

        async def counting(report):
            self.reports += 1
            return await sync(report)

        return counting

    async def call(self, gate, seconds, outcome="ok", tokens=100.0, cost=0.0):
        gate = self.gates[gate] if isinstance(gate, int) else gate
        try:
            await gate.enter(tokens)
        except JudgeFailure as failure:
            self.outcomes[failure.cause] += 1
            raise
        self.flying += 1
        self.peak = max(self.peak, self.flying)
        assert self.flying <= self.cap
        ended = None
        try:
            await asyncio.sleep(seconds)
            ended = outcome() if callable(outcome) else outcome
            self.outcomes[ended] += 1
        finally:
            self.flying -= 1
            gate.leave(ended, tokens, tokens, cost, f"{ended} happened")

    def held(self):
        return sum(process.held for process in self.limits._endpoints["endpoint"].processes.values())

    async def at_rest(self):
        """Soon after the last call nothing is held, and the first who comes gets everything."""
        await asyncio.sleep(0.25)  # a port that is far needs its time
        assert self.flying == 0 and self.held() == 0
        assert all(gate._contact is None or gate._contact.done() for gate in self.gates)
        self.peak = 0
        await asyncio.gather(*(self.call(0, 1.0) for _ in range(self.cap)))
        assert self.peak == self.cap


def flaky(limits, rng):
    """Limits that one in five reports does not reach."""

    async def sync(report):
        await asyncio.sleep(rng.uniform(0, 0.01))
        if rng.random() < 0.2:
            raise ConnectionError("the actor is gone")
        return limits.sync(report)

    return sync


# --- nobody is forgotten


async def random_calls(fleet, calls, longest):
    """Bursts, lone calls and pauses, at every gate."""
    rng, tasks = fleet.rng, []
    while calls > 0:
        for _ in range(min(calls, rng.choice([1, 1, 2, 7, 40]))):
            seconds = rng.choice([0.0, rng.uniform(0, longest), rng.expovariate(3 / longest)])
            tasks.append(asyncio.create_task(fleet.call(rng.randrange(len(fleet.gates)), seconds)))
            calls -= 1
        await asyncio.sleep(rng.choice([0.0, 0.0, longest / 10, longest, 3 * longest]))
    return await asyncio.gather(*tasks, return_exceptions=True)


@pytest.mark.parametrize("port", [in_process, far])
@pytest.mark.parametrize("cap,gates", [(1, 1), (4, 1), (1, 3), (2, 4), (7, 3)])
def test_thousands_of_calls_in_any_pattern_get_through(cap, gates, port):
    async def main(loop):
        for longest in (0.004, 0.06, 1.5):
            fleet = Fleet(loop, cap, gates, port, seed=cap)
            results = await random_calls(fleet, 400, longest)
            assert not any(results) and fleet.outcomes == {"ok": 400}
            await fleet.at_rest()

    simulate(main)


def test_on_a_loop_in_real_time():
    async def main(loop):
        fleet = Fleet(loop, 5, 3, seed=1)
        results = await random_calls(fleet, 2000, 0.002)
        assert not any(results) and fleet.peak == 5
        await asyncio.sleep(0.2)
        assert fleet.held() == 0

    simulate(main, asyncio.SelectorEventLoop, seconds=60)


def test_callers_are_let_in_in_the_order_they_came():
    async def main(loop):
        fleet, order = Fleet(loop, 2), []

        async def one(number):
            await fleet.gates[0].enter(1.0)
            order.append(number)
            await asyncio.sleep(fleet.rng.random())
            fleet.gates[0].leave("ok", 1.0, 1.0)

        await asyncio.gather(*(one(number) for number in range(50)))
        assert order == list(range(50))

    simulate(main)


def test_a_call_without_an_estimate_passes_a_limit_on_tokens():
    async def main(loop):
        fleet = Fleet(loop, 2, tokens_per_minute=600.0)
        await asyncio.gather(*(fleet.call(0, 0.1, tokens=0.0) for _ in range(5)))

    simulate(main, seconds=60)


@pytest.mark.timeout(60)
def test_calls_outlive_an_outage_that_ends():
    async def main(loop):
        breaker = BreakerSettings(min_requests=5, pause_s=10, max_pauses=4)
        fleet = Fleet(loop, 4, 3, far, breaker=breaker)

        def outcome():
            return "ok" if loop.time() > 100 else "server_error"

        async def persistent(gate):
            while fleet.outcomes["ok"] < 1000:
                await fleet.call(gate, 1.0, outcome)

        await asyncio.gather(*(persistent(gate) for gate in range(3) for _ in range(5)))
        # The first wave of failures, then one probe a pause (10, 20, 40, 80 s), each with what was let in beside it.
        assert 5 <= fleet.outcomes["server_error"] <= 5 + 2 * fleet.cap + 2 * 4
        assert fleet.limits.outage is None and loop.time() < 100 + 80 + 1.05 * 1000 / 4 + 10

    simulate(main)


# --- cancellation


@pytest.mark.parametrize("port", [in_process, far])
@pytest.mark.parametrize("seed", range(4))
def test_cancelled_callers_leave_nothing_behind(seed, port):
    async def main(loop):
        fleet = Fleet(loop, 3, 2, port, seed)
        rng, tasks = fleet.rng, []
        for _ in range(300):
            task = asyncio.create_task(fleet.call(rng.randrange(2), rng.choice([0.0, 0.01, 0.3])))
            tasks.append(task)
            if rng.random() < 0.5:
                loop.call_later(rng.choice([0.0, 0.001, rng.uniform(0, 0.5)]), task.cancel)
            if rng.random() < 0.2:
                await asyncio.sleep(rng.choice([0.0, 0.01, 0.2]))
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert {type(result) for result in results} == {type(None), asyncio.CancelledError}
        await fleet.at_rest()

    simulate(main)


def test_one_who_is_cancelled_in_the_moment_he_is_let_in_gives_his_place_to_the_next():
    async def main(loop):
        fleet = Fleet(loop, 1, requests_per_minute=6.0)
        (gate,) = fleet.gates
        await gate.enter(10.0)
        unlucky = asyncio.create_task(fleet.call(0, 0.0))
        next_one = asyncio.create_task(fleet.call(0, 0.0))
        while gate._requests < 1.0:  # it waits for the rate: ten seconds
            await asyncio.sleep(0.01)
        gate.leave("ok", 10.0, 10.0)  # lets the unlucky one in
        unlucky.cancel()
        start = loop.time()
        await next_one
        assert unlucky.cancelled() and loop.time() - start < 0.1  # and the one request that the rate allows is his

    simulate(main)


def test_slots_that_arrive_for_a_caller_who_has_gone_go_back():
    async def main(loop):
        fleet = Fleet(loop, 4, 2, far)
        gone = asyncio.create_task(fleet.call(0, 1.0))
        await asyncio.sleep(0.005)
        gone.cancel()
        await asyncio.sleep(0.2)
        assert fleet.held() == 0

    simulate(main)


def test_idle_gates_hold_nothing():
    async def main(loop):
        fleet = Fleet(loop, 8, 2)
        await asyncio.gather(*(fleet.call(0, 0.5) for _ in range(20)))
        await asyncio.sleep(0.06)
        assert fleet.held() == 0
        start, fleet.peak = loop.time(), 0
        await asyncio.gather(*(fleet.call(1, 0.5) for _ in range(8)))
        assert fleet.peak == 8 and loop.time() - start < 0.51
        before = fleet.reports
        await asyncio.sleep(100)
        assert fleet.reports <= before + 1  # and say nothing

    simulate(main)


def test_a_gate_serves_one_loop_after_another():
    limits = SharedLimits({"endpoint": EndpointLimits("m at u", 2)})
    gate = RequestGate("endpoint", "p", in_process(limits))

    async def use():
        await gate.enter(1.0)
        gate.leave("ok", 1.0, 1.0)

    async def be_killed():
        await gate.enter(1.0)
        try:
            await asyncio.sleep(100)
        finally:
            gate.leave(None, 1.0, 1.0)

    async def kill():
        task = asyncio.create_task(be_killed())
        await asyncio.sleep(0.01)
        del task  # asyncio.run cancels what is left

    for main in (use, kill, use, use):
        asyncio.run(asyncio.wait_for(main(), 10))


# --- what stops


def tripped_after(failures):
    return BreakerSettings(min_requests=failures, max_pauses=0)


@pytest.mark.parametrize("port", [in_process, far])
@pytest.mark.parametrize(
    "cause,line,outcome,words",
    [
        ("outage", {"breaker": tripped_after(6)}, "timeout", "m at u is down: 100% of"),
        ("outage", {"breaker": tripped_after(6)}, "auth", "auth happened"),
        ("budget", {"budget_usd": 3.0}, "ok", "judge.budget_usd=$3.00"),
    ],
)
def test_a_stop_reaches_all_who_wait_and_all_who_come(cause, line, outcome, words, port):
    async def main(loop):
        fleet = Fleet(loop, 4, 3, port, **line)
        tasks = [asyncio.create_task(fleet.call(number % 3, 1.0, outcome, cost=0.5)) for number in range(90)]
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert loop.time() < 6
        failures = [result for result in results if result is not None]
        assert len(failures) >= 90 - 6 - 2 * fleet.cap
        for failure in failures:
            assert isinstance(failure, JudgeFailure) and failure.cause == cause and words in failure.detail
        start = loop.time()
        for gate in fleet.gates:
            with pytest.raises(JudgeFailure) as late:
                await fleet.call(gate, 1.0)
            assert late.value.cause == cause
        assert loop.time() - start < 1.0
        await asyncio.sleep(0.3)
        assert fleet.held() == 0

    simulate(main)


def test_limits_out_of_reach_are_said_and_not_waited_for(caplog):
    async def main(loop):
        def broken(limits):
            async def sync(report):
                raise ConnectionError("the actor is gone")

            return sync

        fleet = Fleet(loop, 4, 1, broken)
        results = await asyncio.gather(*(fleet.call(0, 1.0) for _ in range(20)), return_exceptions=True)
        for failure in results:
            assert isinstance(failure, JudgeFailure) and failure.cause == "outage"
            assert "out of reach" in failure.detail and "the actor is gone" in failure.detail
        assert fleet.peak == 0 and loop.time() < 1

    simulate(main)


@pytest.mark.parametrize("seed", range(3))
def test_limits_that_are_out_of_reach_now_and_then(seed, caplog):
    async def main(loop):
        fleet = Fleet(loop, 4, 3, flaky, seed)
        tasks = [asyncio.create_task(fleet.call(number % 3, 0.3, cost=1.0)) for number in range(60)]
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert {result.cause for result in results if result is not None} <= {"outage"}
        while fleet.outcomes["ok"] < 200:
            try:
                await fleet.call(fleet.rng.randrange(3), fleet.rng.uniform(0, 0.5), cost=1.0)
            except JudgeFailure:
                pass
        for gate in range(3):  # one last report of each that arrives
            while (await asyncio.gather(fleet.call(gate, 0.1, cost=1.0), return_exceptions=True))[0] is not None:
                pass
        await asyncio.sleep(3)
        assert fleet.flying == 0
        return fleet.limits.spent_usd, fleet.outcomes["ok"]

    spent, paid = simulate(main)
    assert spent == pytest.approx(paid, abs=3)  # what was not told because the very last report failed
    assert paid >= 200


# --- and the cap is used


@pytest.mark.parametrize("gates", [1, 4])
@pytest.mark.parametrize("seconds,cap", [(0.02, 8), (0.05, 32), (1.0, 64)])
def test_a_backlog_is_worked_off_at_the_full_cap(seconds, cap, gates):
    async def main(loop):
        fleet = Fleet(loop, cap, gates)
        calls = 60 * cap
        await asyncio.gather(*(fleet.call(number % gates, seconds) for number in range(calls)))
        assert loop.time() <= 1.03 * calls * seconds / cap + 3 * POLL_S
        assert fleet.reports <= gates * (loop.time() / POLL_S + 10) * 1.1  # and a report is rare beside the calls
        assert fleet.peak == cap

    simulate(main)


def test_a_backlog_with_calls_of_all_lengths_and_limits_far_away():
    async def main(loop):
        fleet = Fleet(loop, 16, 3, far)
        lengths = [fleet.rng.uniform(0.5, 2.0) for _ in range(1200)]
        await asyncio.gather(*(fleet.call(number % 3, length) for number, length in enumerate(lengths)))
        assert loop.time() <= 1.05 * sum(lengths) / 16 + 2.0

    simulate(main)


def test_calls_one_after_another_cost_no_time_of_their_own():
    async def main(loop):
        fleet = Fleet(loop, 4, 1, far)
        for _ in range(100):
            await fleet.call(0, 0.1)
        assert loop.time() < 100 * 0.1 * 1.25
        assert fleet.reports < 100 * 3

    simulate(main)


def test_calls_that_use_less_than_announced_do_not_feed_each_other_past_the_rate():
    async def main(loop):
        fleet = Fleet(loop, 40, tokens_per_minute=6000.0)  # 100 a second
        gate, starts = fleet.gates[0], []

        async def one(seconds):
            await gate.enter(100.0)
            starts.append(loop.time())
            await asyncio.sleep(seconds)
            gate.leave("ok", 100.0, 50.0)

        tasks = [asyncio.create_task(one(50.0 if number < 40 else 0.1)) for number in range(1000)]
        await asyncio.sleep(180)
        for at in starts:  # a minute's worth, a second's, one call overdrawn, and what calls from before give back
            assert 50.0 * sum(at <= other < at + 60 for other in starts) <= 6000 + 100 + 100 + 40 * 50
        assert len(starts) > 180 * 100 / 100  # what they did not use is used by others
        for task in tasks:
            task.cancel()

    simulate(main)


# --- many processes


async def keep_busy(fleet, callers, seconds, call_s):
    """Callers at every gate that make one call after the other; the number of calls that were admitted at each gate."""
    admitted, end = Counter(), fleet.loop.time() + seconds

    async def caller(number):
        while fleet.loop.time() < end:
            await fleet.gates[number].enter(100.0)
            admitted[number] += 1
            try:
                await asyncio.sleep(call_s * fleet.rng.uniform(0.5, 1.5))
            finally:
                fleet.gates[number].leave("ok", 100.0, 100.0)

    gates = range(len(fleet.gates))
    tasks = [asyncio.create_task(caller(number)) for number in gates for _ in range(callers)]
    await asyncio.sleep(seconds)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return [admitted[number] for number in gates]


def test_a_rate_far_below_the_demand_admits_every_process_alike():
    async def main(loop):
        fleet = Fleet(loop, 512, 16, far, requests_per_minute=300)
        admitted = await keep_busy(fleet, 3, 24.0, 1.0)
        assert 118 <= sum(admitted) <= 125 and min(admitted) >= 6

    simulate(main)


def test_many_processes_that_keep_their_slots_busy_report_seldom():
    async def main(loop):
        fleet = Fleet(loop, 512, 64, far)
        admitted = await keep_busy(fleet, 12, 12.0, 4.0)
        assert fleet.reports < 12 * 400 and sum(admitted) > 1500 and min(admitted) > 15

    simulate(main)
