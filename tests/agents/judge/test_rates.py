"""A token bucket and a cap that gives way, on a clock that is passed in.

Promise under test: a bucket never holds more than one second's worth and never gives what it does not hold, whatever
is taken, handed back or overdrawn, so no window is exceeded; the cap shrinks once for a wave of 429, below what was in
flight, never below one, and grows back to where it was and no further.
"""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.judge.rates import COOLDOWN_S, AdaptiveCap, Bucket

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


# --- the cap


def test_a_wave_of_429_shrinks_it_once():
    cap = AdaptiveCap(100)
    for at in (10.0, 10.1, 12.0, 10.0 + COOLDOWN_S - 0.01):
        cap.heard(at, 0, 50, 100)
        assert cap.value == 80
    cap.heard(10.0 + COOLDOWN_S, 0, 1, 100)
    assert cap.value == 64


def test_it_shrinks_below_what_was_in_flight():
    cap = AdaptiveCap(100)
    cap.heard(0.0, 0, 1, 20)  # 100 were never tried
    assert cap.value == 16


@given(st.integers(1, 300), st.lists(st.tuples(seconds, st.integers(0, 50), st.integers(0, 50)), max_size=60))
def test_it_stays_between_one_and_the_most(most, waves):
    cap, now = AdaptiveCap(most), 0.0
    for pause, answered, limited in waves:
        now += pause
        cap.heard(now, answered, limited, min(cap.value, answered + limited))
        assert 1 <= cap.value <= most
    now += 2 * COOLDOWN_S  # not to the last bit of a float
    for _ in range(most):  # a cap's worth of successes brings one more
        before = cap.value
        cap.heard(now, before + 1, 0, before)
        assert before < cap.value <= before + 3 or cap.value == most
    assert cap.value == most


def test_it_does_not_grow_while_the_wave_may_still_be_on():
    cap = AdaptiveCap(10)
    cap.heard(0.0, 0, 1, 10)
    cap.heard(COOLDOWN_S - 0.1, 1000, 0, 8)
    assert cap.value == 8
    cap.heard(COOLDOWN_S + 0.1, 1000, 0, 8)
    assert cap.value == 10


def test_successes_beside_a_429_do_not_outweigh_it():
    cap = AdaptiveCap(10)
    cap.heard(0.0, 1000, 1, 10)
    assert cap.value == 8
