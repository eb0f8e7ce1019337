"""A training run whose charts the tests recount: known sentences, answers, lengths, judges, failures."""

import json
import random

from ditto.run.run_folder import RunFolder
from ditto.run.step_metrics import session_metrics
from soul.judge.call.usage import Usage
from soul.record import Failure
from tests.soul.figures.made_up_runs import session

STEPS, ROWS, GROUP = 8, 6, 4
ADVICE = ["Say who was in the room.", "Name your price early.", "The kettle is dear.", "Give reasons for the price."]
ALARM, ALARM_AT = "copying", 5


def charted_run(folder):
    """Write the run, and return its sessions."""
    dice, run, everything = random.Random(5), RunFolder(folder), []
    for step in range(1, STEPS + 1):
        sessions = [
            invented(task, step, row, k, dice)
            for task in ("hitom", "sotopia")
            for row in range(ROWS)
            for k in range(GROUP)
        ]
        run.write_traces("step", step, sessions)
        times = {"timing_s/step": 40.0 + step, "timing_s/gen": 20.0, "timing_s/rollout_judging": 4.0}
        numbers = {
            "judge/queued_s": 0.5 * step,
            "actor/grad_norm": dice.random(),
            f"alarm/{ALARM}": float(step >= ALARM_AT),
        }
        run.log_metrics(step, session_metrics(sessions) | times | numbers)
        everything += sessions
    facts = {"schema_version": 1, "config": {"trainer": {"lr": 1e-5}, "files": ["a", folder.name]}}
    (folder / "run.json").write_text(json.dumps(facts), encoding="utf-8")
    return everything


def invented(task, step, row, k, dice):
    """A session: binary rewards in hitom, others in sotopia."""
    first, second = dice.random() < 0.1 * step, dice.random() < 0.8
    rewards = (
        (float(first), float(second)) if task == "hitom" else (0.05 * step + 0.1 * dice.random(), dice.random() / 2)
    )
    one = session(task, step, row, k, rewards, "word " * dice.randint(1, 30), " ".join(dice.sample(ADVICE, 2)))
    one.prompts = [f"{task}/judge@{1 if step < 4 else 2}"]
    one.target = "A. box or C. hall" if task == "hitom" else None
    if task == "hitom":
        one.draft.given = dice.choice(["A. box", "B. lamp"])
        one.refined.given = dice.choice(["A. box", "B. lamp", "C. hall", None])
    one.usage["judge"] = Usage(calls=4, requests=3, cache_hits=1, unpriced=3, seconds=3.0, queued_s=row / 4)
    one.usage["critic"] = Usage(calls=1, requests=1, unpriced=1, seconds=2.0, queued_s=0.125)
    if dice.random() < 0.05:
        one.draft.reward, one.refined, one.feedback = None, None, None
        one.draft.failure = Failure("judge", dice.choice(["timeout", "refusal"]), "it took too long")
    return one


def both(sessions, task=None):
    """The sessions of a task with both rewards, as (session, gain)."""
    return [
        (one, one.refined.reward - one.draft.reward)
        for one in sessions
        if one.refined and one.draft.reward is not None and one.refined.reward is not None and task in (None, one.task)
    ]
