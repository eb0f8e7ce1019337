"""Finished samples as the journal has them, made by hand."""

import random
from functools import cache

from soul import examples, tasks
from soul.judge.call.usage import Usage
from soul.record import AttemptRecord, Failure, SessionRecord

TOM = "hitom"  # accuracy, 0 to 1


def usage(cost=0.0, prompt=0, completion=0, **other):
    return Usage(calls=1, requests=1, cost_usd=cost, prompt_tokens=prompt, completion_tokens=completion, **other)


@cache
def record_of(task, number):
    """The record of the task's example with that number, and what it belongs to; of a task without examples nothing."""
    if task not in examples.names():
        return {}, {}
    row = examples.load(task).row(number)
    return row.model_dump(mode="json"), dict(tasks.load(task).groups(row))


def sample(
    reward,
    number=0,
    k=0,
    *,
    of=TOM,
    task=None,
    metrics=None,
    cause="timeout",
    contentless=False,
    usages=None,
    answer="...",
    groups=None,
):
    """One record of the journal; a reward of None is a failure with that cause."""
    valid = reward is not None
    task = task or of
    record, known = record_of(task, number)
    episode = tasks.load(task).episode_type({"policy": [{"role": "assistant", "content": answer}]}).to_json()
    draft = AttemptRecord(
        seats=episode.pop("seats"),
        base={},
        ended=episode.pop("ended"),
        episode=episode,
        reward=reward,
        metrics=(metrics or {"accuracy": reward, "answered": 1.0}) if valid else None,
        contentless=contentless,
        failure=None if valid else Failure("judge", cause, "it hung"),
        seconds={"play": 1.5, "judge": 0.5} if valid else {"play": 1.0},
    )
    return SessionRecord(
        set=of,
        task=task,
        file="samples.parquet",
        row=1000 + number,
        number=number,
        sample=k,
        stamp=f"{task}-{number}",
        groups=known if groups is None else groups,
        record=record,
        prompts=[prompt.id for prompt in tasks.load(task).prompts] if record else [],
        draft=draft,
        usage=usages if usages is not None else {"policy": usage(0.5, 100, 20), "judge": usage(0.25, 30, 10)},
    )


def numbered(rewards, of=TOM, **other):
    """One sample a row."""
    return [sample(reward, number, of=of, **other) for number, reward in enumerate(rewards)]


def shuffled(samples, seed=0):
    samples = list(samples)
    random.Random(seed).shuffle(samples)
    return samples
