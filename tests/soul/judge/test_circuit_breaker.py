"""When an endpoint as a whole fails: pause, ask again, give up.

Promise under test: too large a share of a sliding window's requests failed, and nothing is sent for a while, twice as
long each time; then one request at a time probes, and only what that one brings counts; after some pauses in a row, or
at once where no waiting heals it, the breaker trips for good and says why. 429 and unusable answers never open it.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from soul.errors import CONTENT
from soul.judge.circuit_breaker import BreakerSettings, CircuitBreaker


def breaker(**given_):
    return CircuitBreaker(BreakerSettings(**{"min_requests": 10, "pause_s": 30, "max_pauses": 2, **given_}))


def record(made, at, outcomes, detail):
    for outcome, count in outcomes.items():
        for _ in range(count):
            made.record(at, outcome, detail)


def opened(**given_):
    """One that has just opened, at 0 s."""
    made = breaker(**given_)
    record(made, 0.0, {"server_error": 10}, "HTTP 500")
    assert made.state_at(0.0) == "open"
    return made


def probing(**given_):
    """One whose pause is over and whose probe is under way, at 30 s."""
    made = opened(**given_)
    assert made.state_at(30.0) == "probing"
    made.probe_sent = True
    return made


# --- the table of states


@pytest.mark.parametrize(
    "outcomes,state",
    [
        ({"ok": 10}, "closed"),
        ({"server_error": 9}, "closed"),  # too few to tell
        ({"server_error": 5, "ok": 5}, "closed"),  # the share itself is not above the share
        ({"server_error": 6, "ok": 5}, "open"),
        ({"timeout": 10}, "open"),
        ({"connection": 10}, "open"),
        ({"auth": 10}, "tripped"),
        ({"auth": 6, "not_found": 2, "bad_request": 1, "ok": 5}, "tripped"),
        ({"server_error": 1, "auth": 10}, "open"),  # one of them may heal
        ({"auth": 5, "ok": 5}, "closed"),
        ({"server_error": 5, "refusal": 6}, "closed"),  # an answer came: the endpoint is well
        ({"auth": 6, "invalid": 3, "ok": 2}, "tripped"),
        ({"rate_limit": 1000}, "closed"),
        ({"rate_limit": 1000, "server_error": 9}, "closed"),  # they are not counted at all
        ({"rate_limit": 1000, "server_error": 10}, "open"),
        ({}, "closed"),
        ({"server_error": 0, "ok": 0}, "closed"),
    ],
)
def test_closed(outcomes, state):
    made = breaker()
    record(made, 0.0, outcomes, "")
    assert made.state_at(0.0) == state


@given(st.lists(st.sampled_from([*sorted(CONTENT), "rate_limit", "ok"]), max_size=200))
def test_429_and_unusable_answers_never_open_it(causes):
    made = breaker(min_requests=1, share=0.01)
    for second, cause in enumerate(causes):
        record(made, float(second), {cause: 3}, cause)
        assert made.state_at(float(second)) == "closed"


@pytest.mark.parametrize("outcome", ["ok", "timeout", "auth", "refusal"])
def test_until_a_probe_is_sent_what_comes_in_is_of_before_the_pause(outcome):
    made = opened()
    made.state_at(31.0)
    record(made, 31.0, {outcome: 1}, "old news")
    assert made.state_at(31.0) == "probing" and made.pauses == 1


@pytest.mark.parametrize(
    "outcomes,state",
    [
        ({"ok": 1}, "closed"),
        ({"invalid": 1}, "closed"),  # it answers
        ({"timeout": 1}, "open"),
        ({"auth": 1}, "open"),
        ({"ok": 1, "timeout": 1}, "closed"),
        ({"rate_limit": 1}, "probing"),
        ({}, "probing"),
    ],
)
def test_probing(outcomes, state):
    made = probing()
    record(made, 31.0, outcomes, "")
    assert made.state_at(31.0) == state


def test_a_success_clears_the_slate():
    made = probing()
    record(made, 31.0, {"ok": 1}, "")
    record(made, 31.0, {"server_error": 9}, "")  # the ten from before would make it nineteen
    assert made.state_at(31.0) == "closed"
    record(made, 31.0, {"server_error": 1}, "")
    assert made.state_at(31.0) == "open" and made.until == 31.0 + 30.0  # and its pauses begin anew


def test_pauses_double_and_then_it_trips():
    made, now = breaker(max_pauses=3), 0.0
    record(made, now, {"server_error": 10}, "")
    for pause in (30.0, 60.0, 120.0):
        assert made.state_at(now + pause - 0.01) == "open"
        now += pause
        assert made.state_at(now) == "probing"
        made.probe_sent = True
        record(made, now, {"timeout": 1}, "")
    assert made.state_at(now) == "tripped"
    for later in (now, now + 1e6):
        record(made, later, {"ok": 100}, "")
        assert made.state_at(later) == "tripped"


def test_the_window_slides():
    made = breaker(window_s=60)
    for second in range(0, 1000, 7):  # never ten within a minute
        record(made, float(second), {"server_error": 1}, "")
        assert made.state_at(float(second)) == "closed"
    made = breaker(window_s=60)
    record(made, 0.0, {"ok": 1000}, "")
    record(made, 61.0, {"server_error": 10}, "")  # an hour of health does not hide an outage
    assert made.state_at(61.0) == "open"
    made = breaker(window_s=60)
    record(made, 0.0, {"ok": 10}, "")
    record(made, 60.0, {"server_error": 10}, "")
    assert made.state_at(60.0) == "closed"


def test_the_summary_says_share_causes_and_the_last_failure():
    made = breaker(share=0.9)
    record(made, 0.0, {"ok": 3, "refusal": 1, "timeout": 2, "rate_limit": 50}, "m at u: no answer in time")
    record(made, 1.0, {"server_error": 6}, "m at u: HTTP 503")
    record(made, 2.0, {"rate_limit": 1}, "m at u: slow down")  # no reason for anything here
    record(made, 2.0, {"ok": 1}, "")
    assert made.summary() == ("62% of 13 requests failed (server_error 6, timeout 2); last cause: m at u: HTTP 503")
