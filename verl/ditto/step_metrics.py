"""The numbers of a step that people watch, computed from the sessions' traces and from nothing else.

So a recount from the trace files gives the same numbers.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

Trace = dict[str, Any]

_NOT_THE_JUDGE = {"task_error", "leak", "policy", "too_long"}


def failures(trace: Trace) -> Iterator[dict[str, Any]]:
    """Every failure in a session's trace."""
    attempts = [trace["draft"], trace["refined"]]
    found = [attempt["failure"] for attempt in attempts if attempt] + [trace["feedback_failure"]]
    yield from (failure for failure in found if failure)


def judge_failure(trace: Trace) -> dict[str, Any] | None:
    """The session's first failure of a judge or feedback endpoint."""
    return next((f for f in failures(trace) if f["stage"] != "play" and f["cause"] not in _NOT_THE_JUDGE), None)


def failures_by_cause(traces: Sequence[Trace]) -> Counter[str]:
    """Sessions that lost a judge, by cause; a session counts once."""
    return Counter(failure["cause"] for trace in traces if (failure := judge_failure(trace)))


def summary_line(step: int, steps: int, numbers: dict[str, float]) -> str:
    """A step in one line, for whoever watches the log."""
    parts = [f"step {step}/{steps}"]
    if "ditto/reward_draft" in numbers:
        parts.append(f"drafts {numbers['ditto/reward_draft']:.3f}")
    if "ditto/reward_refined" in numbers:
        parts.append(f"refined {numbers['ditto/reward_refined']:.3f} ({numbers['ditto/gap']:+.3f})")
    parts.append(f"invalid {numbers['ditto/share_invalid']:.0%}")
    if numbers["judge/calls"]:
        parts.append(f"judge {numbers['judge/calls']:.0f} calls, {numbers['judge/failure_share']:.0%} failed")
    if "timing_s/step" in numbers:
        parts.append(f"{numbers['timing_s/step']:.1f} s")
    return " | ".join(parts)


def session_metrics(traces: Sequence[Trace]) -> dict[str, float]:
    """Rewards, teacher-student gap, shares, invalid sessions by cause, and what the judges cost."""
    n = len(traces)
    drafts = [t["draft"]["reward"] for t in traces if t["draft"]["valid"]]
    refined = [t["refined"]["reward"] for t in traces if t["refined"] and t["refined"]["valid"]]
    both = [(t["draft"]["reward"], t["refined"]["reward"]) for t in traces if t["refined"] and t["refined"]["valid"]]
    numbers: dict[str, float] = {
        "ditto/share_refined": len(refined) / n,
        "ditto/share_invalid": 1 - len(drafts) / n,
        "ditto/redactions": sum(t["redactions"] for t in traces),
    }
    if drafts:
        numbers["ditto/reward_draft"] = statistics.fmean(drafts)
    if refined:
        numbers["ditto/reward_refined"] = statistics.fmean(refined)
        numbers["ditto/gap"] = statistics.fmean(r - d for d, r in both)
        numbers["ditto/share_better"] = sum(r > d for d, r in both) / len(both)
    causes = Counter(f"{failure['stage']}/{failure['cause']}" for trace in traces for failure in failures(trace))
    numbers |= {f"ditto/invalid/{name}": count / n for name, count in causes.items()}
    for key in ("calls", "retries", "prompt_tokens", "completion_tokens", "seconds"):
        numbers[f"judge/{key}"] = sum(t["judge"][key] for t in traces)
    for name in ("draft", "refined"):
        for stage in ("play", "judge", "feedback"):
            seconds = [t[name]["seconds"][stage] for t in traces if t[name] and stage in t[name]["seconds"]]
            if seconds:
                numbers[f"session_s/{name}_{stage}_mean"] = statistics.fmean(seconds)
                numbers[f"session_s/{name}_{stage}_max"] = max(seconds)
    return numbers
