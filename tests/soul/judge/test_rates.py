"""A token bucket, and what an endpoint that answers 429 takes, on a clock that is passed in.

Promise under test: a bucket never holds more than one second's worth and never gives what it does not hold, whatever
is taken, handed back or overdrawn, so no window is exceeded; a wave of 429 lowers the cap once,
to what the endpoint holds or by half, never to nothing, and the cap grows again.
"""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from soul.judge.rates import HOLD_S, JITTER, LONG_S, ROUNDED_S, Bucket, Throttle

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


# --- what an endpoint that answers 429 takes


def refuse(throttle, at, count, in_flight, wave=0, retry_after=None):
    """So many refusals at this time; the last one leaves so many requests in flight."""
    for left in range(in_flight + count - 1, in_flight - 1, -1):
        throttle.refused(at, left, wave, retry_after)


def test_the_first_wave_finds_what_the_endpoint_holds_and_pauses_it_once():
    throttle = Throttle(64, random.Random(0))
    refuse(throttle, 10.0, 56, 8, retry_after=3.0)
    assert throttle.cap == 8 and throttle.waves == 1
    assert 13.0 - ROUNDED_S <= throttle.until <= 13.0 + 3.0 * JITTER


def test_a_later_wave_halves_the_cap_at_most():
    throttle = Throttle(64)
    refuse(throttle, 0.0, 24, 40)
    refuse(throttle, 5.0, 40, 0, wave=1)
    assert throttle.cap == 20
    refuse(throttle, 5.1, 9, 0, wave=1)  # sent before that was known: the same wave
    assert throttle.cap == 20 and throttle.waves == 2


def test_a_single_refusal_at_the_cap_lowers_it_by_one_without_a_pause_and_it_grows_again_with_answers():
    throttle = Throttle(64)
    throttle._cap = 9.0
    throttle.answered(0.0)
    throttle.waves = 1
    throttle.refused(1.0, 8, 1)
    assert throttle.cap == 8 and throttle.until < 1.0
    for _ in range(400):
        throttle.answered(1.0 + HOLD_S / 2)  # not yet: it is held
    assert throttle.cap == 8
    for _ in range(9):
        throttle.answered(1.0 + HOLD_S)
    assert throttle.cap == 9


def test_while_nothing_is_answered_pauses_grow_to_five_seconds_and_the_cap_falls_to_one():
    throttle, now = Throttle(64), 0.0
    for wave in range(40):
        refuse(throttle, now, throttle.cap, 0, wave)
        pause, now = throttle.until - now, throttle.until
    assert throttle.cap == 1 and LONG_S <= pause <= LONG_S * (1 + JITTER)
    assert throttle.refusing_s > 60
    throttle.answered(now)
    assert throttle.refusing_s == 0.0
