"""Finished samples as the journal has them, made by hand."""

import random

from agents.judge.usage import Usage

TOM = "hitom"  # accuracy, 0 to 1


def usage(cost=0.0, prompt=0, completion=0, **other):
    return Usage(
        calls=1, requests=1, cost_usd=cost, prompt_tokens=prompt, completion_tokens=completion, **other
    ).to_json()


def sample(reward, number=0, k=0, *, of=TOM, task=None, metrics=None, cause="timeout", contentless=False, usages=None):
    """One line of the journal; a reward of None is a failure with that cause."""
    valid = reward is not None
    return {
        "set": of,
        "task": task or of,
        "row": 1000 + number,
        "number": number,
        "sample": k,
        "draft": {
            "seats": {"policy": [{"role": "assistant", "content": "..."}]},
            "ended": "answered",
            "reward": reward,
            "metrics": (metrics or {"accuracy": reward, "answered": 1.0}) if valid else None,
            "critique": None,
            "contentless": contentless,
            "valid": valid,
            "failure": None if valid else {"stage": "judge", "cause": cause, "detail": "it hung"},
            "seconds": {"play": 1.5, "judge": 0.5} if valid else {"play": 1.0},
        },
        "usage": usages if usages is not None else {"policy": usage(0.5, 100, 20), "judge": usage(0.25, 30, 10)},
    }


def numbered(rewards, of=TOM, **other):
    """One sample a row."""
    return [sample(reward, number, of=of, **other) for number, reward in enumerate(rewards)]


def shuffled(samples, seed=0):
    samples = list(samples)
    random.Random(seed).shuffle(samples)
    return samples
