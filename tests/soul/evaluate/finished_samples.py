"""Finished samples as the journal has them, made by hand."""

import random
from functools import cache

from soul import examples, tasks
from soul.evaluate.numbers.results import summarise
from soul.evaluate.tables.run_table import markdown
from soul.judge.call.usage import Usage
from soul.record import AttemptRecord, Failure, SessionRecord
from soul.rows.task_files import parse_row
from soul.session import Attempt
from soul.testing import scripted_players
from tests.soul.samples import episode_of, verdict_of

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


def scored_by_rule(task, record, text, number=0, k=0):
    """A sample in which the policy said this text, with the verdict of a task that scores by rule."""
    item = parse_row(task, {"index": number, **record})
    attempt = Attempt(scripted_players(text)(), episode_of(item, text), verdict_of(item, text))
    return SessionRecord(
        set=task,
        task=task,
        number=number,
        row=number,
        sample=k,
        stamp=f"{task}-{number}",
        record=item.row.model_dump(mode="json"),
        groups=dict(item.task.groups(item.row)),
        draft=attempt.to_record(),
    )


def shown_for_the_set(samples):
    """The metrics beside the score of these samples' only set, which the table shows as well."""
    name = samples[0].set
    results = summarise(samples, [name])
    found = results.sets[name]
    (line,) = [line for line in markdown(results).splitlines() if line.startswith(f"{name}, beside the score:")]
    for metric, value in found.whole.items():
        assert f"{metric} {value:.3g}" in line
        assert found.metrics[metric] == found.to_json()["metrics"][metric] == value
    return found.whole
