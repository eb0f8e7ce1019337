"""The rollout phase of a step (`timing_s/gen`), split into what a user can act on. The step's traces have the times.

At every moment of the phase exactly one of these holds:

    sampling   a turn of the policy is being sampled
    judging    no turn is, but a session runs: it waits for a judge, a critic, a partner or its environment
    waiting    no session of the step runs: the trainer hands out prompts, polls the queue, or puts the engine to sleep

The moments are read from the clocks of the machines on which the sessions ran. On several nodes these differ a little,
and so do the parts; their sum is always the phase.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from soul.record import SessionRecord

Interval = tuple[float, float]  # start and end, unix time


def rollout_times(traces: Sequence[SessionRecord], phases: Sequence[Interval]) -> dict[str, float]:
    """The parts of the rollout phase in seconds, and the tokens that were sampled per second of sampling.

    Args:
        traces: of all sessions that were played for the step.
        phases: when the rollout phase of each part of the step began and ended.
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
