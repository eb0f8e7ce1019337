"""The parts of the rollout phase, against a count of whole seconds."""

import random

import pytest

from ditto.run.step_metrics import rollout_times
from soul.record import AttemptRecord, SequenceSummary, SessionRecord


def record(attempt: AttemptRecord, refined: AttemptRecord | None = None) -> SessionRecord:
    return SessionRecord(task="hitom", number=0, row=0, draft=attempt, refined=refined)


def attempt(start: int, play: int, judge: int) -> AttemptRecord:
    started = {"play": float(start), "judge": float(start + play)}
    return AttemptRecord(started=started, seconds={"play": float(play), "judge": float(judge)})


def sequence(of: str, kind: str, tokens: int, turns: list[tuple[float, float]]) -> SequenceSummary:
    return SequenceSummary.model_validate(
        {"attempt": of, "seat": "p", "kind": kind, "prompt_tokens": 1, "response_tokens": tokens, "turn_times": turns}
    )


def session(chance: random.Random) -> tuple[SessionRecord, set[int], set[int], int]:
    """A session, the seconds in which it sampled and in which it ran, and the tokens that it sampled."""
    start = chance.randrange(100)
    play, judge = chance.randint(1, 9), chance.randint(0, 9)
    refined = attempt(start + play + judge, 6, 3) if chance.random() < 0.5 else None
    trace = record(attempt(start, play, judge), refined)
    sampled, tokens = set(), 0
    for name, first, length in [("draft", start, play), ("refined", start + play + judge, 6)][: 2 if refined else 1]:
        turns = []
        for _ in range(chance.randint(0, 3)):
            begin = first + chance.randrange(length)
            seconds = chance.randint(0, first + length - begin)
            turns.append((float(begin), float(seconds)))
            sampled |= set(range(begin, begin + seconds))
        count = chance.randint(1, 50) if turns else 0
        tokens += count
        for kind in ("draft",) if name == "draft" else ("refined_base", "refined_feedback"):
            trace.sequences.append(sequence(name, kind, count, turns))
    end = start + play + judge + (9 if refined else 0)
    return trace, sampled, set(range(start, end)), tokens


@pytest.mark.parametrize("seed", range(20))
def test_every_second_of_the_phase_is_in_one_part(seed: int) -> None:
    chance = random.Random(seed)
    made = [session(chance) for _ in range(chance.randint(0, 8))]
    sampled, running = (set().union(*(each[place] for each in made)) for place in (1, 2))
    phases = [(20, 50), (60, 110)] if seed % 2 else [(0, 140)]
    phase = {second for first, last in phases for second in range(first, last)}
    numbers = rollout_times([each[0] for each in made], [(float(first), float(last)) for first, last in phases])
    assert numbers["timing_s/rollout_sampling"] == len(sampled & phase)
    assert numbers["timing_s/rollout_judging"] == len((running - sampled) & phase)
    assert numbers["timing_s/rollout_waiting"] == len(phase - running)
    if sampled:
        assert numbers["perf/rollout_tokens_per_s"] == pytest.approx(sum(each[3] for each in made) / len(sampled))
    else:
        assert "perf/rollout_tokens_per_s" not in numbers
