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

from soul.judge.rates import JITTER, LONG_S, Bucket, Throttle

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
        if what == "take" and bucket.wait_s(1.0) == 0.0:
            bucket.level -= 1.0
            out.append((now, 1.0))
        elif what != "take":
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
    bucket.level = -overdraft
    due = (overdraft + 1.0) / (per_minute / 60)
    assert bucket.wait_s(1.0) == pytest.approx(due)
    bucket.refill(0.99 * due)
    assert bucket.level < 1.0
    for part in range(1, 11):  # in pieces as in one
        bucket.refill(due * (0.99 + part / 1000 * 1.01))
    assert bucket.level == pytest.approx(min(1.0, bucket.capacity), abs=2e-3 * (1 + overdraft))


def test_a_bucket_starts_full_and_a_slow_one_holds_one_call():
    assert Bucket(600.0, 5.0).level == 10.0  # one second's worth, not a minute's
    slow = Bucket(6.0, 5.0)
    assert slow.level == 1.0
    slow.refill(1000.0)
    assert slow.level == 1.0


def test_the_clock_may_stand_still_and_no_rate_is_no_limit():
    bucket = Bucket(60.0, 100.0)
    bucket.level -= 1.0
    for now in (100.0, 99.0, 100.0):
        bucket.refill(now)
        assert bucket.level <= 1e-9
    unlimited = Bucket(None, 0.0)
    unlimited.level -= 1e12
    unlimited.refill(10.0)
    assert unlimited.wait_s(1e12) == 0.0


def test_a_slowed_bucket_lets_its_rate_through_and_no_burst():
    bucket = Bucket(6000.0, 0.0)
    bucket.slow_down_to(20.0)
    out = []
    for step in range(1000):
        bucket.refill(step / 100)
        out.append(math.floor(max(0.0, bucket.level)))
        bucket.level -= out[-1]
    assert sum(out[100:]) == pytest.approx(180, abs=1) and max(out) == 1
    bucket.slow_down_to(1e9)  # only the quota holds again
    assert bucket.rate == 100.0


# --- what an endpoint that answers 429 takes


def of(most=64):
    return Throttle(most, 0.0, random.Random(0))


def refuse(throttle, at, count, in_flight, wave=0, retry_after=None):
    """So many refusals at this time; the last one leaves so many requests in flight."""
    for left in range(in_flight + count - 1, in_flight - 1, -1):
        throttle.refused(at, left, wave, retry_after)


def answer(throttle, at, count):
    for _ in range(count):
        throttle.answered(at)


def test_a_refusal_pauses_for_what_the_endpoint_asks_and_a_little_longer_and_one_wave_counts_once():
    throttle = of()
    refuse(throttle, 10.0, 24, 40, retry_after=3.0)
    assert 13.0 <= throttle.until <= 13.0 + 3.0 * JITTER and throttle.waves == 1
    refuse(throttle, 10.2, 32, 8, retry_after=3.0)  # sent before the pause: the same wave
    assert throttle.waves == 1 and throttle.until >= 13.2


def test_the_cap_falls_to_what_the_endpoint_held_and_grows_by_one_after_so_many_answers():
    throttle = of()
    refuse(throttle, 0.0, 56, 8)
    throttle.advance(1.0, 8)
    assert throttle.cap == 8 and throttle.rate == math.inf
    answer(throttle, 2.0, 400)  # not yet: it is held
    assert throttle.cap == 8
    answer(throttle, 10.0, 9)
    assert throttle.cap == 9


def test_the_cap_falls_by_half_where_nothing_that_was_refused_can_be_counted():
    throttle = of()
    refuse(throttle, 0.0, 64, 0)  # another process holds all there is
    throttle.advance(1.0, 0)
    assert throttle.cap == 32


def test_a_refusal_with_few_in_flight_after_the_cap_was_learnt_lowers_the_rate_to_what_was_admitted():
    throttle = of()
    refuse(throttle, 0.0, 44, 20, retry_after=1.0)
    throttle.advance(1.1, 20)
    answer(throttle, 1.12, 20)
    refuse(throttle, 1.13, 10, 0, wave=1)
    assert throttle.cap == 20 and 10 < throttle.rate <= 30


def test_a_little_too_much_lowers_the_rate_by_a_tenth_without_a_pause():
    throttle = of()
    throttle.rate = 20.0
    answer(throttle, 5.0, 100)
    before = throttle.rate
    refuse(throttle, 5.0, 1, 3)
    assert throttle.until < 5.0 and throttle.cap == 64 and throttle.rate == pytest.approx(0.9 * before)


@given(st.lists(st.tuples(seconds, st.integers(0, 50), st.integers(0, 50)), max_size=60))
def test_it_always_lets_something_through_in_the_end(waves):
    throttle, now = of(), 0.0
    for pause, answered, refused in waves:
        now += pause
        throttle.advance(now, 3)
        answer(throttle, now, answered)
        refuse(throttle, now, refused, 3, throttle.waves, 2.0)
        assert 1 <= throttle.cap <= 64 and throttle.rate > 0.1
        assert throttle.until <= now + max(2.0, LONG_S) * (1 + JITTER)


def test_how_long_it_refused_everything_is_known_and_an_answer_ends_it():
    throttle = of()
    for at in range(8):
        refuse(throttle, 10.0 * at, 1, 0, throttle.waves, 1.0)
        throttle.advance(10.0 * at + 2, 0)
    assert throttle.refusing_s == 70.0
    throttle.answered(80.0)
    assert throttle.refusing_s == 0.0
