"""The numbers of a step are what a recount of its trace file gives.

The recount is a loop over sessions that knows the trace format and the meaning of each number, and nothing of the code.
"""

import json
import random
from typing import Any

import pytest

from ditto.run.step_metrics import failures_by_cause, first_look, judge_failure, session_metrics
from soul.judge import Endpoint, Usage
from soul.judge.call.http import Tokens
from soul.record import SCHEMA_VERSION, AttemptRecord, SessionRecord

CAUSES = ["rate_limit", "invalid", "timeout", "task_error", "leak", "policy", "too_long"]
SUMS = [
    "calls", "requests", "retries", "reasks", "cache_hits", "failures", "prompt_tokens", "cached_tokens",
    "completion_tokens", "reasoning_tokens", "cost_usd", "unpriced", "seconds", "queued_s",
]  # fmt: skip


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
        "contentless": outcome == "valid" and chance.random() < 0.2,
        "jury": [],
        "seconds": seconds,
    }


def session(chance: random.Random) -> dict[str, Any]:
    draft = attempt(chance)
    trace = {"draft": draft, "refined": None, "feedback": None, "feedback_failure": None, "redactions": 0}
    trace |= {"number": 0, "row": 0}
    trace["full_marks"] = chance.choice([0.5, 1.0])
    if draft["valid"]:
        after = chance.choice(["refined"] * 4 + ["gate", "feedback"])
        if after != "gate":
            draft["seconds"]["feedback"] = chance.random()
            trace["redactions"] = chance.randint(0, 2)
        if after == "refined":
            trace["feedback"], trace["refined"] = "Look again.", attempt(chance)
        if after == "feedback":
            trace["feedback_failure"] = failure(chance, "feedback")
            if trace["feedback_failure"]["cause"] != "leak":
                trace["redactions"] = 0
    trace["out_of_tokens"] = {name: chance.choice([0, 0, 3]) for name in ("draft", "refined") if trace[name]}
    trace["task"] = chance.choice(["hitom", "sotopia"])
    trace["usage"] = {
        role: usage(chance) for role in chance.sample(["judge", "feedback", "partner"], chance.randint(0, 3))
    }
    return trace


def usage(chance: random.Random) -> dict[str, Any]:
    count = Usage(calls=chance.randint(1, 5), retries=chance.randint(0, 3), cache_hits=chance.randint(0, 1))
    count.failures["timeout"] = chance.randint(0, 1)
    endpoint = Endpoint(price_in=chance.random(), price_out=chance.random())
    for _ in range(chance.randint(0, 4)):
        count.requests += 1
        tokens = Tokens(900, chance.randint(0, 90), cached=chance.randint(0, 40))
        count.answered(endpoint, tokens, 2 * chance.random(), (0.0, 0.0))
    return count.to_json()


def record_of(trace: dict[str, Any]) -> SessionRecord:
    """The record of this trace, read from its line as every reader does."""
    return SessionRecord.from_line(json.dumps(trace | {"schema_version": SCHEMA_VERSION}), "trace")


def metrics_of(traces: list[dict[str, Any]]) -> dict[str, float]:
    return session_metrics([record_of(trace) for trace in traces])


def recount_of_redactions(sessions: list[dict[str, Any]]) -> dict[str, float]:
    """How much feedback was redacted, and how often a refined answer became right after it."""
    written = redacted = 0
    became: dict[str, list[int]] = {}
    for trace in sessions:
        leaked_whole = trace["feedback_failure"] is not None and trace["feedback_failure"]["cause"] == "leak"
        if trace["feedback"] is not None or leaked_whole:
            written += 1
            redacted += 1 if trace["redactions"] else 0
        if trace["refined"] is not None and trace["refined"]["valid"]:
            if trace["draft"]["reward"] < trace["full_marks"]:
                kind = "redacted" if trace["redactions"] else "untouched"
                became.setdefault(kind, []).append(int(trace["refined"]["reward"] >= trace["full_marks"]))
    numbers = {f"ditto/became_right/{kind}": sum(right) / len(right) for kind, right in became.items()}
    return numbers | ({"ditto/share_redacted": redacted / written} if written else {})


def recount_of_tasks(sessions: list[dict[str, Any]]) -> dict[str, float]:
    """The numbers of each task, where there are several."""
    numbers: dict[str, float] = {}
    for task in {found["task"] for found in sessions} if len({found["task"] for found in sessions}) > 1 else ():
        mine = [found for found in sessions if found["task"] == task]
        scored = [found["draft"]["reward"] for found in mine if found["draft"]["valid"]]
        pairs = [(f["draft"]["reward"], f["refined"]["reward"]) for f in mine if f["refined"] and f["refined"]["valid"]]
        place = f"ditto/task/{task}"
        numbers[f"{place}/sessions"] = len(mine)
        numbers[f"{place}/share_invalid"] = (len(mine) - len(scored)) / len(mine)
        numbers[f"{place}/share_refined"] = len(pairs) / len(mine)
        if scored:
            numbers[f"{place}/reward_draft"] = sum(scored) / len(scored)
        if pairs:
            numbers[f"{place}/reward_refined"] = sum(new for _, new in pairs) / len(pairs)
            numbers[f"{place}/gap"] = sum(new - old for old, new in pairs) / len(pairs)
            numbers[f"{place}/share_better"] = sum(new > old for old, new in pairs) / len(pairs)
    return numbers


def recount(lines: list[str]) -> dict[str, float]:
    """Every number again, from the lines of a trace file."""
    n = refined_valid = draft_invalid = redactions = better = 0
    drafts = refined = gap = 0.0
    invalid: dict[str, int] = {}
    judge: dict[str, float] = {}
    contentless: dict[str, list[bool]] = {}
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
        for name in ("draft", "refined"):
            if trace[name] is not None:
                contentless.setdefault(name, []).append(trace[name]["contentless"])
        roles = {role for line in lines for role in json.loads(line)["usage"]}
        tasks = {found["task"] for line in lines if (found := json.loads(line))["usage"]}
        for role, counts in trace["usage"].items():
            places = [""] + [f"role/{role}/"] * (len(roles) > 1) + [f"task/{trace['task']}/"] * (len(tasks) > 1)
            for place in places:
                for key in SUMS:
                    value = sum(counts[key].values()) if key == "failures" else counts[key]
                    judge[f"{place}{key}"] = judge.get(f"{place}{key}", 0) + value
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
    sessions = [json.loads(line) for line in lines]
    numbers |= recount_of_redactions(sessions) | recount_of_tasks(sessions)
    numbers |= {f"ditto/invalid/{key}": count / n for key, count in invalid.items()}
    numbers |= {f"judge/{key}": value for key, value in judge.items() if not key.endswith("cache_hits")}
    for key, hits in judge.items():
        if key.endswith("cache_hits"):
            place = key.removesuffix("cache_hits")
            numbers[f"judge/{place}cache_hit_rate"] = hits / judge[f"{place}calls"]
    for name in ("draft", "refined"):
        cut = [found["out_of_tokens"][name] for found in sessions if found[name]]
        if cut:
            numbers[f"ditto/share_out_of_tokens/{name}"] = sum(count > 0 for count in cut) / len(cut)
    for name, said_nothing in contentless.items():
        numbers[f"ditto/share_contentless/{name}"] = sum(said_nothing) / len(said_nothing)
    for key, values in times.items():
        numbers[f"session_s/{key}_mean"] = sum(values) / len(values)
        numbers[f"session_s/{key}_max"] = max(values)
    return numbers


@pytest.mark.parametrize("seed", range(30))
def test_a_recount_of_the_traces_gives_the_same_numbers(seed: int) -> None:
    chance = random.Random(seed)
    traces = [session(chance) for _ in range(chance.choice([1, 2, 5, 40]))]
    expected = recount([json.dumps(trace) for trace in traces])
    got = {key: value for key, value in metrics_of(traces).items() if "latency_p" not in key}
    if not any(trace["usage"] for trace in traces):  # nobody was asked: every counter is there, and 0
        expected |= {f"judge/{key}": 0 for key in SUMS if key != "cache_hits"}
    assert got == pytest.approx(expected, rel=1e-12, abs=1e-12)


def test_the_first_look_says_what_the_drafts_lack() -> None:
    drafts = [{"answered": 1.0}, {"answered": 0.0}, {"answered": 0.5}, {}, None]
    traces = [
        SessionRecord(
            task="hitom", number=0, row=0, draft=AttemptRecord(reward=None if metrics is None else 0.0, metrics=metrics)
        )
        for metrics in drafts
    ]
    numbers = {"ditto/groups": 3.0, "ditto/groups_idle": 2.0, "ditto/share_out_of_tokens/draft": 0.4}
    assert first_look(traces, numbers) == (
        "first look: 4 of 5 drafts have a verdict, 1 of 3 have the form that the task asks for, 1 of 3 groups have a "
        "learning signal, 2 drafts were cut off by a token limit"
    )


def trace_of(draft: tuple[str, str] | None, refined: tuple[str, str] | None, feedback: str | None) -> dict[str, Any]:
    def made(outcome: tuple[str, str] | None) -> dict[str, Any]:
        failed = {"stage": outcome[0], "cause": outcome[1], "detail": "x"} if outcome else None
        return {"failure": failed, "reward": None if failed else 1.0}

    found = {"stage": "feedback", "cause": feedback, "detail": "x"} if feedback else None
    whole = {"task": "hitom", "number": 0, "row": 0, "draft": made(draft), "refined": made(refined)}
    return whole | {"feedback_failure": found}


@pytest.mark.parametrize(
    ("draft", "refined", "feedback", "cause"),
    [
        (None, None, None, None),
        (("judge", "rate_limit"), None, None, "rate_limit"),
        (("judge", "task_error"), None, None, None),  # a bug of the task is not the judge's
        (("play", "timeout"), None, None, "timeout"),  # a partner's endpoint is asked through the gateway too
        (("play", "deadline"), None, None, None),  # of the episode; no endpoint failed
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
    trace = record_of(trace_of(draft, refined, feedback))
    found = judge_failure(trace)
    assert (found and found.cause) == cause
    assert failures_by_cause([trace, trace]) == ({cause: 2} if cause else {})


def test_a_jurys_agreement_is_reported() -> None:
    trace = session(random.Random(1))
    opinions = [{"judge": "a", "failure": None, "reward": 1.0, "metrics": {"goal": 0.5}}]
    trace["draft"]["jury"] = [*opinions, {"judge": "b", "failure": None, "reward": 0.5, "metrics": {"goal": 0.5}}]
    numbers = metrics_of([trace, trace])
    assert (numbers["judge/jury/exact/reward"], numbers["judge/jury/exact/goal"]) == (0.0, 1.0)
