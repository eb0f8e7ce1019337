"""The numbers of a step are what a recount of its trace file gives.

The recount is a loop over sessions that knows the trace format and the meaning of each number, and nothing of the code.
"""

import json
import random
from typing import Any

import pytest

from ditto.step_metrics import failures_by_cause, judge_failure, session_metrics

CAUSES = ["rate_limit", "invalid", "timeout", "task_error", "leak", "policy", "too_long"]


def failure(chance: random.Random, stage: str) -> dict[str, Any]:
    return {"stage": stage, "cause": chance.choice(CAUSES), "detail": "what happened"}


def attempt(chance: random.Random) -> dict[str, Any]:
    """A valid episode, or one that failed in play or at the judge."""
    outcome = chance.choice(["valid"] * 5 + ["play", "judge"])
    seconds = {"play": chance.random()} | ({"judge": chance.random()} if outcome != "play" else {})
    return {
        "reward": chance.choice([0.0, 0.25, 0.5, 1.0]) if outcome == "valid" else None,
        "valid": outcome == "valid",
        "failure": None if outcome == "valid" else failure(chance, outcome),
        "seconds": seconds,
    }


def session(chance: random.Random) -> dict[str, Any]:
    draft = attempt(chance)
    trace = {"draft": draft, "refined": None, "feedback_failure": None, "redactions": chance.randint(0, 2)}
    if draft["valid"]:
        after = chance.choice(["refined"] * 4 + ["gate", "feedback"])
        if after != "gate":
            draft["seconds"]["feedback"] = chance.random()
        if after == "refined":
            trace["refined"] = attempt(chance)
        if after == "feedback":
            trace["feedback_failure"] = failure(chance, "feedback")
    trace["judge"] = {
        "calls": chance.randint(0, 5),
        "retries": chance.randint(0, 3),
        "prompt_tokens": chance.randint(0, 900),
        "completion_tokens": chance.randint(0, 90),
        "seconds": chance.random(),
        "failures": {},
    }
    return trace


def recount(lines: list[str]) -> dict[str, float]:
    """Every number again, from the lines of a trace file."""
    n = refined_valid = draft_invalid = redactions = better = 0
    drafts = refined = gap = 0.0
    invalid: dict[str, int] = {}
    judge: dict[str, float] = {}
    times: dict[str, list[float]] = {}
    for line in lines:
        trace = json.loads(line)
        n += 1
        redactions += trace["redactions"]
        if trace["draft"]["valid"]:
            drafts += trace["draft"]["reward"]
        else:
            draft_invalid += 1
        if trace["refined"] is not None and trace["refined"]["valid"]:
            refined_valid += 1
            refined += trace["refined"]["reward"]
            gap += trace["refined"]["reward"] - trace["draft"]["reward"]
            better += trace["refined"]["reward"] > trace["draft"]["reward"]
        for name in ("draft", "refined"):
            if trace[name] is None:
                continue
            if trace[name]["failure"] is not None:
                key = f"{trace[name]['failure']['stage']}/{trace[name]['failure']['cause']}"
                invalid[key] = invalid.get(key, 0) + 1
            for stage, seconds in trace[name]["seconds"].items():
                times.setdefault(f"{name}_{stage}", []).append(seconds)
        if trace["feedback_failure"] is not None:
            key = f"feedback/{trace['feedback_failure']['cause']}"
            invalid[key] = invalid.get(key, 0) + 1
        for key, value in trace["judge"].items():
            if key != "failures":
                judge[key] = judge.get(key, 0) + value
    numbers = {
        "ditto/share_refined": refined_valid / n,
        "ditto/share_invalid": draft_invalid / n,
        "ditto/redactions": redactions,
    }
    if n > draft_invalid:
        numbers["ditto/reward_draft"] = drafts / (n - draft_invalid)
    if refined_valid:
        numbers["ditto/reward_refined"] = refined / refined_valid
        numbers["ditto/gap"] = gap / refined_valid
        numbers["ditto/share_better"] = better / refined_valid
    numbers |= {f"ditto/invalid/{key}": count / n for key, count in invalid.items()}
    numbers |= {f"judge/{key}": value for key, value in judge.items()}
    for key, values in times.items():
        numbers[f"session_s/{key}_mean"] = sum(values) / len(values)
        numbers[f"session_s/{key}_max"] = max(values)
    return numbers


@pytest.mark.parametrize("seed", range(30))
def test_a_recount_of_the_traces_gives_the_same_numbers(seed: int) -> None:
    chance = random.Random(seed)
    traces = [session(chance) for _ in range(chance.choice([1, 2, 5, 40]))]
    expected = recount([json.dumps(trace) for trace in traces])
    got = session_metrics(traces)
    assert got == pytest.approx(expected, rel=1e-12, abs=1e-12)


def test_a_step_without_one_valid_draft_has_no_rewards_and_no_zero() -> None:
    chance = random.Random(0)
    traces = []
    while len(traces) < 5:
        trace = session(chance)
        if not trace["draft"]["valid"]:
            traces.append(trace)
    numbers = session_metrics(traces)
    assert numbers["ditto/share_invalid"] == 1.0
    assert not [key for key in numbers if "reward" in key or "gap" in key]


def trace_of(draft: tuple[str, str] | None, refined: tuple[str, str] | None, feedback: str | None) -> dict[str, Any]:
    def made(outcome: tuple[str, str] | None) -> dict[str, Any]:
        failed = {"stage": outcome[0], "cause": outcome[1], "detail": "x"} if outcome else None
        return {"failure": failed, "valid": failed is None}

    found = {"stage": "feedback", "cause": feedback, "detail": "x"} if feedback else None
    return {"draft": made(draft), "refined": made(refined), "feedback_failure": found}


@pytest.mark.parametrize(
    ("draft", "refined", "feedback", "cause"),
    [
        (None, None, None, None),
        (("judge", "rate_limit"), None, None, "rate_limit"),
        (("judge", "task_error"), None, None, None),  # a bug of the task is not the judge's
        (("play", "timeout"), None, None, None),  # a partner's endpoint is not the judge
        (("play", "policy"), None, None, None),
        (None, ("judge", "invalid"), None, "invalid"),
        (None, None, "leak", None),
        (None, None, "server_error", "server_error"),
        (("judge", "timeout"), ("judge", "invalid"), None, "timeout"),  # a session counts once, by its first
    ],
)
def test_which_failures_are_the_judges(
    draft: tuple[str, str] | None, refined: tuple[str, str] | None, feedback: str | None, cause: str | None
) -> None:
    trace = trace_of(draft, refined, feedback)
    found = judge_failure(trace)
    assert (found and found["cause"]) == cause
    assert failures_by_cause([trace, trace]) == ({cause: 2} if cause else {})
