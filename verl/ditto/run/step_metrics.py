"""The metrics of a step's sessions, computed from their traces alone, so a recount of the trace files gives the same.

docs/training.md explains how to read them.
"""

import statistics
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from soul import tasks
from soul.judge.ledger import Ledger
from soul.judge.ledger import numbers as counters
from soul.jury import agreement
from soul.record import AttemptRecord, Failure, SessionRecord

_NOT_AN_ENDPOINT = {"task_error", "leak", "policy", "too_long", "deadline"}
Interval = tuple[float, float]  # start and end, unix time


def failures(trace: SessionRecord) -> Iterator[Failure]:
    """Every failure in a session's trace."""
    everything = [*(attempt.failure for attempt in trace.attempts), trace.feedback_failure]
    yield from (failure for failure in everything if failure)


def judge_failure(trace: SessionRecord) -> Failure | None:
    """The session's first failure of an endpoint: judge, feedback, partner or environment."""
    return next((f for f in failures(trace) if f.cause not in _NOT_AN_ENDPOINT), None)


def failures_by_cause(traces: Sequence[SessionRecord]) -> Counter[str]:
    """Sessions that lost a judge, by cause; a session counts once."""
    return Counter(failure.cause for trace in traces if (failure := judge_failure(trace)))


def summary_line(step: int, steps: int, numbers: dict[str, float]) -> str:
    """A step in one line of the log."""
    parts = [f"step {step}/{steps}"]
    if "ditto/reward_draft" in numbers:
        parts.append(f"drafts {numbers['ditto/reward_draft']:.3f}")
    if "ditto/reward_refined" in numbers:
        parts.append(f"refined {numbers['ditto/reward_refined']:.3f} ({numbers['ditto/gap']:+.3f})")
    parts.append(f"invalid {numbers['ditto/share_invalid']:.0%}")
    if numbers["judge/calls"]:
        cached = numbers.get("judge/cache_hit_rate", 0.0)
        cost = f", ${numbers['judge/cost_usd']:.3f}" if numbers["judge/cost_usd"] else ""
        parts.append(
            f"judge {numbers['judge/calls']:.0f} calls, {cached:.0%} cached, "
            f"{numbers['judge/failure_share']:.0%} lost{cost}"
        )
    if "timing_s/step" in numbers:
        parts.append(f"{numbers['timing_s/step']:.1f} s")
    return " | ".join(parts)


def first_look(traces: Sequence[SessionRecord], numbers: dict[str, float]) -> str:
    """A line about the first step: drafts that can be read, groups that differ, answers that were cut off."""
    valid = [trace.draft for trace in traces if trace.draft.valid]
    asked = [metrics["answered"] for draft in valid if "answered" in (metrics := draft.metrics or {})]
    parts = [f"{len(valid)} of {len(traces)} drafts have a verdict"]
    if asked:
        parts.append(f"{sum(share == 1.0 for share in asked)} of {len(asked)} have the form that the task asks for")
    groups, idle = (int(numbers.get(f"ditto/{name}", 0)) for name in ("groups", "groups_idle"))
    parts.append(f"{groups - idle} of {groups} groups have a learning signal")
    cut = round(numbers.get("ditto/share_out_of_tokens/draft", 0.0) * len(traces))
    parts.append(f"{cut} drafts were cut off by a token limit")
    return f"first look: {', '.join(parts)}"


def _attempts(traces: Sequence[SessionRecord]) -> dict[str, list[AttemptRecord]]:
    """All drafts and all refined episodes."""
    return {"draft": [t.draft for t in traces], "refined": [t.refined for t in traces if t.refined]}


def _both_rewards(trace: SessionRecord) -> tuple[float, float] | None:
    """Of draft and refined episode; None unless both have a verdict."""
    draft, refined = trace.draft.reward, trace.refined.reward if trace.refined else None
    return None if draft is None or refined is None else (draft, refined)


def _judging(traces: Sequence[SessionRecord]) -> dict[str, float]:
    """The costs of the judges: over all, by role and by task where there are several; and how far a jury agrees."""
    ledger = Ledger()
    for trace in traces:
        ledger.add(trace.task, trace.usage)
    numbers = {f"judge/{key}": value for key, value in counters(ledger.total()).items()}
    for kind, parts in (("role", ledger.by_role()), ("task", ledger.by_task())):
        for name, usage in parts.items() if len(parts) > 1 else ():
            numbers |= {f"judge/{kind}/{name}/{key}": value for key, value in counters(usage).items()}
    juries = [attempt.jury for trace in traces for attempt in trace.attempts if attempt.jury]
    return numbers | {f"judge/jury/{key}": value for key, value in agreement(juries).items()}


def _rewards(traces: Sequence[SessionRecord]) -> dict[str, float]:
    """Rewards of drafts and refined episodes, the gap between them, and shares of the sessions."""
    n = len(traces)
    drafts = [t.draft.reward for t in traces if t.draft.reward is not None]
    both = [pair for t in traces if (pair := _both_rewards(t))]
    refined = [r for _, r in both]
    numbers: dict[str, float] = {"share_refined": len(refined) / n, "share_invalid": 1 - len(drafts) / n}
    if drafts:
        numbers["reward_draft"] = statistics.fmean(drafts)
    if refined:
        numbers["reward_refined"] = statistics.fmean(refined)
        numbers["gap"] = statistics.fmean(r - d for d, r in both)
        numbers["share_better"] = sum(r > d for d, r in both) / len(both)
    return numbers


def _rewards_by_task(traces: Sequence[SessionRecord]) -> dict[str, float]:
    """The same numbers task by task, where there are several: their rewards have different ranges."""
    names = sorted({trace.task for trace in traces})
    numbers: dict[str, float] = {}
    for name in names if len(names) > 1 else ():
        task_traces = [trace for trace in traces if trace.task == name]
        numbers[f"{name}/sessions"] = len(task_traces)
        numbers |= {f"{name}/{key}": value for key, value in _rewards(task_traces).items()}
    return numbers


def _redactions(traces: Sequence[SessionRecord]) -> dict[str, float]:
    """Measure how much the leak guard blanked in the feedback, and if the rest still gives answers away.

    became_right/redacted is the share of right refined answers after a wrong draft and feedback with blanks, and
    became_right/untouched the same after other feedback. If the former is far higher, the guard lets answers through.
    A share of nothing is left out.
    """
    written = [
        t for t in traces if t.feedback is not None or (t.feedback_failure and t.feedback_failure.cause == "leak")
    ]
    numbers: dict[str, float] = {"redactions": sum(t.redactions for t in traces)}
    if written:
        numbers["share_redacted"] = statistics.fmean(t.redactions > 0 for t in written)
    wrong = [(t, pair[1]) for t in written if (pair := _both_rewards(t)) and pair[0] < t.full_marks]
    for name, redacted in (("redacted", True), ("untouched", False)):
        right = [refined >= t.full_marks for t, refined in wrong if (t.redactions > 0) is redacted]
        if right:
            numbers[f"became_right/{name}"] = statistics.fmean(right)
    return numbers


def _hidden(traces: Sequence[SessionRecord]) -> dict[str, float]:
    """Count the dimensions of a draft that its judge was not asked for; nothing if it was asked for all of them."""
    judged = [trace for trace in traces if trace.draft.metrics and not trace.draft.contentless]
    counts = [len(tasks.load(trace.task).ranges.keys() - (trace.draft.metrics or {}).keys()) for trace in judged]
    return {"ditto/dimensions_hidden": statistics.fmean(counts)} if any(counts) else {}


def session_metrics(traces: Sequence[SessionRecord]) -> dict[str, float]:
    """Rewards, gap and shares, over all and by task; invalid sessions by cause; what the judges cost."""
    n = len(traces)
    numbers = {f"ditto/{key}": value for key, value in _rewards(traces).items()}
    numbers |= {f"ditto/task/{key}": value for key, value in _rewards_by_task(traces).items()}
    numbers |= {f"ditto/{key}": value for key, value in _redactions(traces).items()}
    numbers |= _hidden(traces)
    causes = Counter(f"{failure.stage}/{failure.cause}" for trace in traces for failure in failures(trace))
    numbers |= {f"ditto/invalid/{name}": count / n for name, count in causes.items()}
    numbers |= _judging(traces)
    for name, attempts in _attempts(traces).items():
        if attempts:
            numbers[f"ditto/share_contentless/{name}"] = statistics.fmean(a.contentless for a in attempts)
        counts = [t.out_of_tokens[name] > 0 for t in traces if name in t.out_of_tokens]
        if counts:
            numbers[f"ditto/share_out_of_tokens/{name}"] = statistics.fmean(counts)
        for stage in ("play", "judge", "feedback"):
            seconds = [attempt.seconds[stage] for attempt in attempts if stage in attempt.seconds]
            if seconds:
                numbers[f"session_s/{name}_{stage}_mean"] = statistics.fmean(seconds)
                numbers[f"session_s/{name}_{stage}_max"] = max(seconds)
    return numbers


def validation_metrics(traces: Sequence[SessionRecord]) -> dict[str, float]:
    """The numbers of a validation, by task; failed sessions are counted, never scored 0."""
    numbers: dict[str, float] = {}
    for of_task, side in sorted({(trace.task, trace.side) for trace in traces}):
        task_traces = [trace for trace in traces if (trace.task, trace.side) == (of_task, side)]
        task, drafts = tasks.load(of_task), [trace.draft for trace in task_traces if trace.draft.valid]
        name = f"{of_task}/{side}" if side else of_task
        numbers[f"val/{name}/n"] = len(task_traces)
        numbers[f"val/{name}/invalid_share"] = 1 - len(drafts) / len(task_traces)
        summary = task.summarize([task.saved(draft) for draft in drafts])
        numbers |= {f"val/{name}/{metric}": value for metric, value in summary.items()}
        if "reward" in summary:
            numbers[f"val-core/{name}/reward/mean@1"] = summary["reward"]
    return numbers


def rollout_times(traces: Sequence[SessionRecord], phases: Sequence[Interval]) -> dict[str, float]:
    """The parts of the rollout phase in seconds, and the tokens that were sampled per second of sampling.

    At every moment of the phase either a turn of the policy is being sampled, or no turn is, but a session runs, which
    waits for a judge, a critic, a partner or its environment ("judging"), or no session of the step runs ("waiting").

    Args:
        phases: begin and end of the rollout phase of each part of the step.
    """
    turns = {time for trace in traces for sequence in trace.sequences for time in sequence.turn_times}
    sampling = _joined((start, start + seconds) for start, seconds in turns)
    running = _joined([*sampling, *(trace.span for trace in traces if trace.span)])
    sampled, busy = _shared(sampling, phases), _shared(running, phases)
    numbers = {
        "timing_s/rollout_sampling": sampled,
        "timing_s/rollout_judging": busy - sampled,
        "timing_s/rollout_waiting": _length(phases) - busy,
    }
    if seconds := _length(sampling):  # in the asynchronous modes most of it may be before the phase
        numbers["perf/rollout_tokens_per_s"] = sum(trace.sampled_tokens for trace in traces) / seconds
    return numbers


def _joined(intervals: Iterable[Interval]) -> list[Interval]:
    """The union of intervals: ascending, and without overlaps."""
    union: list[Interval] = []
    for start, end in sorted(intervals):
        if union and start <= union[-1][1]:
            union[-1] = union[-1][0], max(union[-1][1], end)
        else:
            union.append((start, end))
    return union


def _shared(union: Sequence[Interval], phases: Sequence[Interval]) -> float:
    """The seconds of a union that are within the phases, which do not overlap either."""
    return sum(max(min(end, last) - max(start, first), 0.0) for start, end in union for first, last in phases)


def _length(intervals: Iterable[Interval]) -> float:
    return sum(end - start for start, end in intervals)
