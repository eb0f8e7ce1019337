"""A token bucket, and what an endpoint that answers 429 takes, on a clock that is passed in.

Promise under test: a bucket never holds more than one second's worth and never gives what it does not hold, whatever
is taken, handed back or overdrawn, so no window is exceeded; a wave of 429 pauses the endpoint once, lowers the cap or
the rate to what the endpoint took, never to nothing, and both grow again.
"""

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from soul.judge.throttle.rates import JITTER, LONG_S, Bucket, Throttle

seconds = st.floats(0, 100)
amounts = st.floats(0, 1000)


@given(
    st.floats(0.1, 1e6),
    st.lists(st.tuples(seconds, st.sampled_from(["take", "give_back", "overdraw"]), amounts), max_size=60),
)
def test_what_goes_out_never_exceeds_what_flowed_in(per_minute, events):
    """In every window: the rate times its length, what one second (or one call) brings, and what was handed back."""
    now, bucket = 0.0, Bucket(per_minute, 0.0)
    burst = max(1.0, per_minute / 60)
    out = [(0.0, 0.0)]  # time, net amount that left
    for pause, what, amount in events:
        now += pause
        bucket.refill(now)
        if what == "take":
            level = bucket.level
            taken = bucket.take(amount)
            assert 0 <= taken <= amount and taken <= max(0.0, level)
            assert taken == pytest.approx(min(amount, max(0.0, level)))
            out.append((now, taken))
        else:
            handed_back = amount if what == "give_back" else -amount
            bucket.give_back(handed_back)
            out.append((now, -handed_back))
        assert bucket.level <= burst * (1 + 1e-9)
    overdrawn = sum(amount for _, what, amount in events if what == "overdraw")
    for first in range(len(out)):
        net = 0.0
        for at, amount in out[first:]:
            net += amount
            window = at - out[first][0]
            assert net <= per_minute / 60 * window + burst + overdrawn + 1e-6 * (1 + net)


@given(st.floats(1.0, 1e5), st.floats(0, 1e4))
def test_an_overdraft_is_paid_off_at_the_rate(per_minute, overdraft):
    bucket = Bucket(per_minute, 0.0)
    bucket.take(math.inf)
    bucket.give_back(-overdraft)
    due = (overdraft + 1.0) / (per_minute / 60)
    bucket.refill(0.99 * due)
    assert bucket.level < 1.0 and bucket.take(1e9) <= max(0.0, bucket.capacity)
    bucket = Bucket(per_minute, 0.0)
    bucket.take(math.inf)
    bucket.give_back(-overdraft)
    for part in range(1, 11):  # in pieces as in one
        bucket.refill(due * part / 10 * 1.0001)
    assert bucket.level == pytest.approx(min(1.0, bucket.capacity), abs=2e-4 * (1 + overdraft))


def test_a_bucket_starts_full_and_a_slow_one_holds_one_call():
    assert Bucket(600.0, 5.0).take(math.inf) == 10.0  # one second's worth, not a minute's
    slow = Bucket(6.0, 5.0)
    assert slow.take(math.inf) == 1.0
    slow.refill(14.9)
    assert slow.take(math.inf) == pytest.approx(0.99)
    slow.refill(1000.0)
    assert slow.take(math.inf) == 1.0


def test_the_clock_may_stand_still_and_a_step_back_gives_nothing():
    bucket = Bucket(60.0, 100.0)
    bucket.take(1.0)
    for now in (100.0, 100.0, 99.0, 100.0, 99.5, 100.0):
        bucket.refill(now)
        assert bucket.level <= 1e-9
    bucket.refill(100.5)
    assert bucket.level == pytest.approx(0.5)


def test_no_rate_is_no_limit():
    bucket = Bucket(None, 0.0)
    bucket.refill(10.0)
    assert bucket.take(1e12) == 1e12
    bucket.give_back(-math.inf)
    bucket.give_back(5.0)
    assert bucket.level == math.inf


def test_a_slowed_bucket_lets_its_rate_through_and_no_burst():
    bucket = Bucket(6000.0, 0.0)
    bucket.slow_down_to(20.0)
    out = []
    for step in range(1000):
        bucket.refill(step / 100)
        out.append(bucket.take(math.floor(max(0.0, bucket.level))))
    assert sum(out[100:]) == pytest.approx(180, abs=1) and max(out) == 1
    bucket.slow_down_to(1e9)  # only the quota holds again
    assert bucket.rate == 100.0


# --- what an endpoint that answers 429 takes


def of(most=64):
    return Throttle(most, 0.0, random.Random(0))


def test_a_refusal_pauses_for_what_the_endpoint_asks_and_a_little_longer_and_one_wave_counts_once():
    throttle = of()
    throttle.record(10.0, 40, 0, {0: 24}, 3.0)
    assert 13.0 <= throttle.until <= 13.0 + 3.0 * JITTER and throttle.waves == 1
    throttle.record(10.2, 8, 0, {0: 32}, 3.0)  # sent before the pause: the same wave
    assert throttle.waves == 1 and throttle.until >= 13.2


def test_the_cap_falls_to_what_the_endpoint_held_and_grows_by_one_for_so_many_answers():
    throttle = of()
    throttle.record(0.0, 60, 0, {0: 4})
    throttle.record(0.05, 8, 0, {0: 52})
    throttle.record(1.0, 0, 8, {})
    assert throttle.cap == 8 and throttle.rate == math.inf
    throttle.record(2.0, 8, 400, {})  # not yet: the next wave would cost a pause
    assert throttle.cap == 8
    for step in range(9):
        throttle.record(10.0 + step, 8, 1, {})
    assert throttle.cap == 9


def test_as_many_in_flight_as_the_endpoint_held_before_are_no_reason_so_the_rate_falls():
    throttle = of()
    throttle.record(0.0, 20, 0, {0: 44}, 1.0)
    throttle.record(1.1, 0, 20, {})
    assert throttle.cap == 20
    throttle.record(1.2, 1, 0, {1: 19}, 1.0)
    throttle.record(2.4, 0, 1, {})
    assert throttle.cap == 20 and 0 < throttle.rate < 20


@given(st.lists(st.tuples(seconds, st.integers(0, 50), st.integers(0, 50)), max_size=60))
def test_it_always_lets_something_through_in_the_end(waves):
    throttle, now = of(), 0.0
    for pause, answered, refused in waves:
        now += pause
        throttle.record(now, 3, answered, {throttle.waves: refused}, 2.0)
        assert (
            1 <= throttle.cap <= 64 and throttle.rate > 0.1 and throttle.until <= now + max(2.0, LONG_S) * (1 + JITTER)
        )


def test_how_long_it_refused_everything_is_known_and_an_answer_ends_it():
    throttle = of()
    for at in range(8):
        throttle.record(10.0 * at, 0, 0, {throttle.waves: 1}, 1.0)
        throttle.record(10.0 * at + 2, 0, 0, {})
    assert throttle.refusing_s == 70.0
    throttle.record(80.0, 0, 1, {})
    assert throttle.refusing_s == 0.0
