"""Invented sessions of a training, as lines of a trace: binary answers, a dialogue, a scene, and hostile texts."""

import random

from tests.soul.evaluate.report.hostile_samples import HOSTILE

STARTED = 1_700_000_000.0
GROUP = 8
KINDS = ("draft", "refined_base", "refined_feedback")


def _said(*turns):
    roles = ["system", *["user", "assistant"] * len(turns)]
    return [{"role": role, "content": text} for role, text in zip(roles, turns, strict=False)]


def attempt(seats, reward, started, metrics=None, **fields):
    """An attempt's record; `started` is the unix time at which its play begins."""
    seconds = {"play": 2.0, "judge": 1.0}
    starts = {"play": started, "judge": started + 2.0}
    shown = {
        "seats": seats,
        "ended": "answered",
        "reward": reward,
        "metrics": metrics or {},
        "valid": reward is not None,
    }
    if reward is None:
        shown["failure"] = {"stage": "judge", "cause": "timeout", "detail": "no answer after 60 s"}
    return {**shown, "seconds": seconds, "started": starts, **fields}


def _answer(right, words):
    return f"The gloves were moved while Isla was away, {words}. So the answer is {'garden' if right else 'crate'}."


def binary(step, number, k, rng):
    """A session of a question with one right answer."""
    right = rng.random() < 0.3 + 0.05 * step
    refined_right = rng.random() < (0.9 if right else 0.5)
    prompt = _said("Answer the question.", f"Where will Isla look for the gloves? Row {number}.", "")[:2]
    told = [prompt[0], {"role": "user", "content": prompt[1]["content"] + "\n\nA reviewer says: look again."}]
    draft = attempt(
        {"policy": [*prompt, _said("", "", _answer(right, "she did not see it"))[2]]},
        float(right),
        STARTED + 60 * step + k,
    )
    draft["critique"] = "You forget who was in the room. The gloves are in the garden."
    refined = attempt(
        {"policy": [*told, _said("", "", _answer(refined_right, "and nobody told her"))[2]]},
        float(refined_right),
        STARTED + 60 * step + k + 5,
    )
    refined["base"] = {"policy": prompt}
    fields = {
        "feedback": "You forget who was in the room. The gloves are in the [withheld].",
        "redactions": 1,
        "redacted": ["garden"],
    }
    return session("hitom", step, number, k, draft, refined, **fields)


def scene(step, number, k, rng):
    """A session of two people, of whom the policy plays one."""

    def play(polite):
        mine = [
            f"Hello Ben, {'would you please' if polite else 'you must'} lend me the car.",
            "Thank you, I will be back by six.",
        ]
        seats = {
            "policy": _said("You are Ann. You want the car.", "It is your turn.", mine[0], "Ben said: maybe.", mine[1])
        }
        acts = [("Ann", mine[0]), ("Ben", "Maybe. When are you back?"), ("Ann", mine[1])]
        shown = [
            {"speaker": who, "kind": "speak", "text": text, "well_formed": True, "held_back": False}
            for who, text in acts
        ]
        return seats, {"acts": shown}

    first, second = play(False), play(True)
    reward = round(rng.random() * 6, 2)
    draft = attempt(first[0], reward, STARTED + 60 * step + k, {"goal": reward, "relationship": 1.0}, episode=first[1])
    draft["critique"] = "Ask politely."
    better = round(reward + rng.random() * 3 - 0.5, 2)
    refined = attempt(
        second[0], better, STARTED + 60 * step + k + 6, {"goal": better, "relationship": 2.0}, episode=second[1]
    )
    refined["jury"] = [{"judge": "a", "reward": better}, {"judge": "b", "reward": better - 1, "metrics": {"goal": 1.0}}]
    return session("sotopia", step, number, k, draft, refined, feedback="Ask politely.", full_marks=10.0)


def dialogue(step, number, k, rng):
    """A session with two seats of several turns."""

    def seat(name, polite):
        return _said(
            f"You are {name}.",
            "Begin.",
            f"{name} {'kindly ' if polite else ''}asks a question.",
            "Go on.",
            f"{name} says goodbye.",
        )

    draft = attempt({"alice": seat("Alice", False), "bob": seat("Bob", False)}, 0.25, STARTED + 60 * step + k)
    refined = attempt({"alice": seat("Alice", True), "bob": seat("Bob", True)}, 0.5, STARTED + 60 * step + k + 7)
    return session("userllm", step, number, k, draft, refined, feedback="Be kind.")


def hostile(step, number):
    """A session whose every text tries to be more than text; it has no refined episode."""
    seats = {
        HOSTILE: [
            {"role": "system", "content": HOSTILE},
            {"role": "user", "content": HOSTILE},
            {"role": "assistant", "content": HOSTILE},
        ]
    }
    draft = attempt(seats, 0.0, STARTED, {HOSTILE: 1.0}, critique=HOSTILE)
    draft["failure"] = {"stage": "judge", "cause": "refusal", "detail": HOSTILE}
    line = session("hitom", step, number, 0, draft, None, feedback=HOSTILE, redactions=1, redacted=[HOSTILE])
    return {**line, "file": HOSTILE, "prompts": [HOSTILE], "session": HOSTILE, "prompt": HOSTILE}


def session(task, step, number, k, draft, refined, **fields):
    """A line of a trace."""
    rewards = {
        "draft": draft["reward"],
        "refined_base": refined and refined["reward"],
        "refined_feedback": refined and refined["reward"],
    }
    advantages = {kind: round(reward - 0.5, 3) for kind, reward in rewards.items() if reward is not None}
    sequences = [
        {
            "attempt": kind.split("_")[0],
            "seat": "policy",
            "kind": kind,
            "prompt_tokens": 200,
            "response_tokens": 80,
            "logp_sampled": -0.7,
            "logp_base": -0.9,
            "advantage": value,
            "weight": 0.01 if value else None,
            "masked": None if value else "zero advantage",
        }
        for kind, value in advantages.items()
    ]
    usage = {
        "judge": {
            "calls": 3,
            "requests": 3,
            "prompt_tokens": 900,
            "completion_tokens": 120,
            "cost_usd": 0.004,
            "seconds": 2.5,
        }
    }
    line = {
        "schema_version": 2,
        "task": task,
        "file": f"{task}.jsonl",
        "number": number,
        "row": 100 + number,
        "step": step,
    }
    ids = {
        "session": f"{task}-{step}-{number}-{k}",
        "prompt": f"{task}-{step}-{number}",
        "prompts": [f"{task}/judge@2"],
    }
    return {
        **line,
        **ids,
        "draft": draft,
        "refined": refined,
        "usage": usage,
        "advantages": advantages,
        "sequences": sequences,
        **fields,
    }


def step_lines(step, rows=2, seed=0):
    """The sessions of a step: for each task `rows` groups of 8."""
    rng = random.Random(1000 * seed + step)
    tasks = (binary, scene, dialogue)
    return [make(step, number, k, rng) for make in tasks for number in range(rows) for k in range(GROUP)]
