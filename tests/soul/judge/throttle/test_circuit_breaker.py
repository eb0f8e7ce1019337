"""When an endpoint as a whole fails: pause, ask again, give up.

Promise under test: too large a share of a sliding window's requests failed, and nothing is sent for a while, twice as
long each time; then one request at a time probes, and only what that one brings counts; after some pauses in a row, or
at once where no waiting heals it, the breaker trips for good and says why. 429 and unusable answers never open it.
"""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from soul.errors import CONTENT, PERMANENT, TRANSIENT
from soul.judge.throttle.circuit_breaker import BreakerSettings, CircuitBreaker
from soul.judge.throttle.shared_limits import EndpointLimits, Report, SharedLimits

FAILURES = sorted((TRANSIENT | PERMANENT) - {"rate_limit"})


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


def breaker(**given_):
    return CircuitBreaker(BreakerSettings(**{"min_requests": 10, "pause_s": 30, "max_pauses": 2, **given_}))


def opened(**given_):
    """One that has just opened, at 0 s."""
    made = breaker(**given_)
    made.record(0.0, {"server_error": 10}, "HTTP 500")
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
        ({"auth": 10, "server_error": 1}, "open"),  # one of them may heal
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
    made.record(0.0, outcomes, "")
    assert made.state_at(0.0) == state


@given(st.lists(st.sampled_from([*sorted(CONTENT), "rate_limit", "ok"]), max_size=200))
def test_429_and_unusable_answers_never_open_it(causes):
    made = breaker(min_requests=1, share=0.01)
    for second, cause in enumerate(causes):
        made.record(float(second), {cause: 3}, cause)
        assert made.state_at(float(second)) == "closed"


@pytest.mark.parametrize("cause", FAILURES)
def test_while_open_nothing_that_comes_in_late_changes_anything(cause):
    made = opened()
    made.record(1.0, {"ok": 100}, "")
    made.record(2.0, {cause: 100}, "late")
    assert made.state_at(29.99) == "open" and made.pauses == 1 and made.until == 30.0
    assert made.state_at(30.0) == "probing"
    assert "10 requests" in made.summary()


@pytest.mark.parametrize("outcome", ["ok", "timeout", "auth", "refusal"])
def test_until_a_probe_is_sent_what_comes_in_is_of_before_the_pause(outcome):
    made = opened()
    made.state_at(31.0)
    made.record(31.0, {outcome: 1}, "old news")
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
    made.record(31.0, outcomes, "")
    assert made.state_at(31.0) == state


def test_a_success_clears_the_slate():
    made = probing()
    made.record(31.0, {"ok": 1}, "")
    made.record(31.0, {"server_error": 9}, "")  # the ten from before would make it nineteen
    assert made.state_at(31.0) == "closed"
    made.record(31.0, {"server_error": 1}, "")
    assert made.state_at(31.0) == "open" and made.until == 31.0 + 30.0  # and its pauses begin anew


def test_pauses_double_and_then_it_trips():
    made, now = breaker(max_pauses=3), 0.0
    made.record(now, {"server_error": 10}, "")
    for pause in (30.0, 60.0, 120.0):
        assert made.state_at(now + pause - 0.01) == "open"
        now += pause
        assert made.state_at(now) == "probing"
        made.probe_sent = True
        made.record(now, {"timeout": 1}, "")
    assert made.state_at(now) == "tripped"
    for later in (now, now + 1e6):
        made.record(later, {"ok": 100}, "")
        assert made.state_at(later) == "tripped"


def test_without_pauses_it_trips_at_once():
    made = breaker(max_pauses=0)
    made.record(0.0, {"timeout": 10}, "")
    assert made.state_at(0.0) == "tripped"


def test_the_window_slides():
    made = breaker(window_s=60)
    for second in range(0, 1000, 7):  # never ten within a minute
        made.record(float(second), {"server_error": 1}, "")
        assert made.state_at(float(second)) == "closed"
    made = breaker(window_s=60)
    made.record(0.0, {"ok": 1000}, "")
    made.record(61.0, {"server_error": 10}, "")  # an hour of health does not hide an outage
    assert made.state_at(61.0) == "open"
    made = breaker(window_s=60)
    made.record(0.0, {"ok": 10}, "")
    made.record(60.0, {"server_error": 10}, "")
    assert made.state_at(60.0) == "closed"


def test_the_summary_says_share_causes_and_the_last_failure():
    made = breaker(share=0.9)
    made.record(0.0, {"ok": 3, "refusal": 1, "timeout": 2, "rate_limit": 50}, "m at u: no answer in time")
    made.record(1.0, {"server_error": 6}, "m at u: HTTP 503")
    made.record(2.0, {"rate_limit": 1}, "m at u: slow down")  # no reason for anything here
    made.record(2.0, {"ok": 1}, "")
    assert made.summary() == ("62% of 13 requests failed (server_error 6, timeout 2); last cause: m at u: HTTP 503")


# --- in the run's limits


def limits_of(clock, cap, **given_):
    return SharedLimits({"endpoint": EndpointLimits("m at u", cap, breaker=BreakerSettings(**given_))}, clock=clock)


def test_the_budget_stops_all():
    clock = Clock()
    limits = SharedLimits(
        {"a": EndpointLimits("x", 4), "b": EndpointLimits("y", 4)}, budget_usd=1.0, spent_usd=0.5, clock=clock
    )
    assert limits.sync(Report("a", "p", 0, 1, cost_usd=0.4)).stop is None
    for line in "ab":
        grant = limits.sync(Report(line, "q", 0, 1, cost_usd=0.1))
        assert grant.slots == 0 and grant.stop.cause == "budget"
        assert "judge.budget_usd=$1.00" in grant.stop.detail


def broken(clock, **given_):
    """Limits whose breaker has just opened for 30 s, with one request of process "old" still under way."""
    limits = limits_of(clock, 8, **{"min_requests": 10, "pause_s": 30, "max_pauses": 2, **given_})
    limits.sync(Report("endpoint", "old", 0, 20))
    grant = limits.sync(Report("endpoint", "old", 1, 20, outcomes={"timeout": 12}, last_failure="no answer"))
    assert grant.slots == 0 and grant.stop is None
    return limits


def test_after_a_pause_one_request_at_a_time_goes_through():
    clock = Clock()
    limits = broken(clock)
    clock.now = 29.9
    assert limits.sync(Report("endpoint", "old", 0, 20)).slots == 0
    clock.now = 30
    slots = [limits.sync(Report("endpoint", name, 0, 20)).slots for name in ("old", "b", "c", "d")]
    assert sum(slots) == 1
    probe = ("old", "b", "c", "d")[slots.index(1)]
    limits.sync(Report("endpoint", probe, 0, 20, outcomes={"ok": 1}))
    assert sum(limits.sync(Report("endpoint", name, 0, 20)).slots for name in ("b", "c", "d")) > 1
    assert limits.outage is None


@pytest.mark.parametrize("outcome", ["timeout", "ok"])
def test_what_was_sent_before_the_pause_is_not_taken_for_the_probe(outcome):
    clock = Clock()
    limits = broken(clock, max_pauses=1)
    clock.now = 31
    assert limits.sync(Report("endpoint", "old", 1, 20)).slots == 0  # its old request is under way: first that one ends
    assert limits.sync(Report("endpoint", "new", 0, 20)).slots == 0
    assert limits.sync(Report("endpoint", "old", 0, 20, outcomes={outcome: 1})).stop is None
    slots = {name: limits.sync(Report("endpoint", name, 0, 20)).slots for name in ("new", "old", "new")}
    assert sorted(slots.values()) == [0, 1] and limits.outage is None  # the probe
    limits.sync(Report("endpoint", max(slots, key=slots.get), 0, 20, outcomes={"timeout": 1}))
    assert limits.outage is not None and "timeout 12" in limits.outage
    assert limits.sync(Report("endpoint", "another", 0, 20)).stop.cause == "outage"


def test_many_old_requests_that_time_out_do_not_trip_the_breaker():
    clock = Clock()
    limits = limits_of(clock, 64, min_requests=10)
    limits.sync(Report("endpoint", "p", 0, 64))
    flying = 40
    limits.sync(Report("endpoint", "p", flying, 20, outcomes={"server_error": 24}))
    while flying:  # one after the other, until long after all the pauses
        clock.now += 10
        flying -= 1
        grant = limits.sync(Report("endpoint", "p", flying, 20, outcomes={"timeout": 1}))
        assert grant.stop is None
    assert grant.slots == 1  # now it is asked whether the endpoint is back
    assert limits.sync(Report("endpoint", "p", 0, 20, outcomes={"ok": 1})).slots > 1


def test_outage_and_window_can_be_read():
    clock = Clock()
    limits = limits_of(clock, 8, min_requests=10, max_pauses=0)
    limits.sync(Report("endpoint", "a", outcomes={"ok": 3, "timeout": 2}))
    limits.sync(Report("endpoint", "b", outcomes={"ok": 4}))
    assert limits.outage is None and limits.outcomes() == {"m at u": {"ok": 7, "timeout": 2}}
    grant = limits.sync(Report("endpoint", "b", outcomes={"timeout": 9}, last_failure="no answer"))
    text = "61% of 18 requests failed (timeout 11); last cause: no answer"
    assert limits.outage == f"m at u: {text}"
    assert grant.stop.cause == "outage" and grant.stop.detail == f"m at u is down: {text}"
    assert limits.sync(Report("endpoint", "another", 0, 1)).stop == grant.stop


def test_the_breaker_of_one_line_leaves_the_others_alone():
    clock = Clock()
    lines = {name: EndpointLimits(name, 4, breaker=BreakerSettings(min_requests=2, max_pauses=0)) for name in "ab"}
    limits = SharedLimits(lines, clock=clock)
    assert limits.sync(Report("a", "p", 0, 1, outcomes={"timeout": 5})).stop is not None
    assert limits.sync(Report("b", "p", 0, 1)).slots >= 1


@given(st.lists(st.tuples(st.sampled_from([0, 1, 29, 61]), st.sampled_from(["ok", *FAILURES]), st.integers(1, 5))))
def test_the_counts_are_those_of_the_window(reports):
    made, now, expected = breaker(min_requests=10**9), 0, []
    for gap, outcome, count in reports:
        now += gap
        made.record(now, {outcome: count}, "")
        expected.append((now, outcome, count))
    recent = Counter()
    for at, outcome, count in expected:
        if at >= now - made.settings.window_s:
            recent[outcome] += count
    assert made.window_counts() == recent
