"""Folders of runs with invented sessions: binary answers, a scene of two people, two seats, and hostile texts."""

import json
import random

from ditto.run.run_folder import RunFolder
from ditto.run.step_metrics import session_metrics
from soul.record import SessionRecord
from tests.soul.pages.hostile_samples import HOSTILE

STARTED = 1_700_000_000.0
GROUP = 8
STEPS, OF_STEP = 4, 48  # of the training that the tests open; sessions of a step
COUNT = STEPS * OF_STEP + 24 + 1  # its sessions, with the validation and the hostile one
SECRET = "garden"  # what the leak guard withheld


def attempt(seats, reward, started, metrics=None, **fields):
    """An attempt's fields; `started` is the unix time at which its play begins."""
    times = {"seconds": {"play": 2.0, "judge": 1.0}, "started": {"play": started, "judge": started + 2.0}}
    return {"seats": seats, "ended": "answered", "reward": reward, "metrics": metrics or {}, **times, **fields}


def said(*turns):
    """A conversation: a system prompt, then user and policy by turns."""
    roles = ["system", *["user", "assistant"] * len(turns)]
    return [{"role": role, "content": text} for role, text in zip(roles, turns, strict=False)]


def answer(right, why):
    return f"The gloves were moved while Isla was away, {why}. So the answer is {SECRET if right else 'crate'}."


def binary(step, number, k, dice):
    """A session of a question with one right answer."""
    first, second = dice.random() < 0.3 + 0.05 * step, dice.random() < 0.7
    asked = ("Answer the question.", f"Where will Isla look for the gloves? Row {number}.")
    draft = attempt({"policy": said(*asked, answer(first, "she did not see it"))}, float(first), begins(step, k))
    told = (asked[0], f"{asked[1]}\n\nA reviewer says: look again.")
    refined = attempt({"policy": said(*told, answer(second, "nobody told her"))}, float(second), begins(step, k) + 5)
    critique = f"You forget who was in the room. The gloves are in the {SECRET}."
    feedback = {"feedback": critique.replace(SECRET, "[withheld]"), "redactions": 1, "redacted": [SECRET]}
    base = {"policy": said(*asked)}
    return session("hitom", step, number, k, draft | {"critique": critique}, refined | {"base": base}, **feedback)


def scene(step, number, k, dice):
    """A session of two people, of whom the policy plays one."""

    def play(polite):
        asks = f"Hello Ben, {'would you please' if polite else 'you must'} lend me the car."
        thanks = "Thank you, I will be back by six."
        seats = {"policy": said("You are Ann. You want the car.", "It is your turn.", asks, "Ben said: maybe.", thanks)}
        acts = [("Ann", asks), ("Ben", "Maybe. When are you back?"), ("Ann", thanks)]
        return seats, {
            "acts": [{"speaker": who, "kind": "speak", "text": text, "well_formed": True} for who, text in acts]
        }

    rewards = [round(6 * dice.random(), 2), round(9 * dice.random(), 2)]
    pairs = zip((False, True), rewards, (0.0, 6.0), strict=True)
    draft, refined = (
        attempt(seats, reward, begins(step, k) + later, {"goal": reward}, episode=episode)
        for polite, reward, later in pairs
        for seats, episode in [play(polite)]
    )
    jury = [{"judge": "a", "reward": 1.0}, {"judge": "b", "reward": 2.0, "metrics": {"goal": 1.0}}]
    return session(
        "sotopia", step, number, k, draft, refined | {"jury": jury}, feedback="Ask politely.", full_marks=10.0
    )


def two_seats(step, number, k, dice):
    """A session in which the policy has two seats of several turns."""

    def seats(manner):
        return {
            name: said(f"You are {name}.", "Begin.", f"{name} asks {manner}.", "Go on.", f"{name} says goodbye.")
            for name in ("Alice", "Bob")
        }

    draft, refined = (
        attempt(seats("at once"), 0.25, begins(step, k)),
        attempt(seats("kindly"), 0.5, begins(step, k) + 7),
    )
    return session("userllm", step, number, k, draft, refined, feedback="Be kind.")


def hostile(step, number=9):
    """A session whose every text tries to be more than text; its draft failed and there is no refined episode."""
    turns = [{"role": role, "content": HOSTILE} for role in ("system", "user", "assistant")]
    failure = {"stage": "judge", "cause": "refusal", "detail": HOSTILE}
    draft = attempt({HOSTILE: turns}, None, STARTED, {HOSTILE: 1.0}, critique=HOSTILE, failure=failure)
    record = session("hitom", step, number, 0, draft, None, feedback=HOSTILE, redactions=1, redacted=[HOSTILE])
    name = HOSTILE.replace("\ud83d", "")  # names are the training's own
    return record.model_copy(update={"file": name, "prompts": [name], "prompt": name, "record": {HOSTILE: HOSTILE}})


def add_hostile(folder, step):
    """Add a file with the hostile session to a step. It is written as ASCII, because of its lone surrogate."""
    line = hostile(step).to_line(ascii_only=True)
    (folder / "traces" / f"step_{step:06d}.1.jsonl").write_text(f"{line}\n", encoding="ascii")


def begins(step, k):
    return STARTED + 60 * step + k


def session(task, step, number, k, draft, refined, **fields):
    """A record with its training sequences."""
    kinds = {"draft": draft, "refined_base": refined, "refined_feedback": refined}
    rewards = {kind: one["reward"] for kind, one in kinds.items() if one and one["reward"] is not None}
    advantages = {kind: round(reward - 0.5, 3) for kind, reward in rewards.items()}
    sizes = {"seat": "policy", "prompt_tokens": 200, "response_tokens": 80, "logp_sampled": -0.7}
    sequences = [
        {**sizes, "attempt": kind.split("_")[0], "kind": kind, "advantage": value, "weight": 0.01 if value else None}
        | {"masked": None if value else "zero advantage"}
        for kind, value in advantages.items()
    ]
    judge = {
        "calls": 3,
        "requests": 3,
        "prompt_tokens": 900,
        "completion_tokens": 120,
        "cost_usd": 0.004,
        "seconds": 2.5,
    }
    ids = {"session": f"{task}-{number}_{k}", "prompt": f"{task}-{number}", "prompts": [f"{task}/judge@2"]}
    place = {"task": task, "file": f"{task}.parquet", "number": number, "row": 100 + number, "step": step}
    asked = {"role": "user", "content": f"Is it right? Case {task}-{step}-{number}-{k}."}
    calls = [{"role": "judge", "model": "m", "request": [asked], "reply": "7"}]
    both = {"draft": {**draft, "calls": calls}, "refined": refined, "usage": {"judge": judge}}
    return SessionRecord.model_validate(
        {**place, **ids, **both, "advantages": advantages, "sequences": sequences, **fields}
    )


def sessions_of(step, rows=2, seed=0):
    """The sessions of a step: for each task `rows` groups of 8."""
    dice = random.Random(1000 * seed + step)
    makers = (binary, scene, two_seats)
    return [make(step, number, k, dice) for make in makers for number in range(rows) for k in range(GROUP)]


def write_step(folder, step, sessions):
    """A finished step: its traces and its metrics."""
    run = RunFolder(folder)
    run.write_traces("step", step, sessions)
    times = {"timing_s/gen": 30.0, "timing_s/rollout_sampling": 22.0, "timing_s/rollout_judging": 8.0}
    times |= {"timing_s/update_actor": 12.0, "timing_s/step": 45.0}
    numbers = {"actor/entropy": 1 - 0.02 * step, "actor/grad_norm": 0.5 + 0.01 * step}
    run.log_metrics(step, session_metrics(sessions) | times | numbers)


def training(folder, steps=4, seed=0, resumed_at=2):
    """A training run with these steps, and a validation after the last one."""
    for step in range(1, steps + 1):
        write_step(folder, step, sessions_of(step, seed=seed))
    RunFolder(folder).write_traces("val", steps, sessions_of(steps, rows=1, seed=seed + 1))
    facts = {
        "schema_version": 1,
        "objective": "ditto",
        "started": STARTED,
        "resumed": [{"step": resumed_at, "time": STARTED}],
    }
    (folder / "run.json").write_text(json.dumps(facts), encoding="utf-8")
    return folder
