"""What the tests of MirrorBench share: two real conversations, scripted users, a panel of judges."""

import asyncio
import statistics

from soul.metrics.lexical import Lexis
from soul.tasks.mirrorbench import MirrorBench, user_turns
from soul.testing import FakeOpenAI, Json, fake_judge, scripted_players

TASK, CHEAP = MirrorBench(), MirrorBench(judge_samples=1)
LESSON = "Type less {braces} 100% \\n <b>."
GOAL = "The user wants to hang a hammock between two trees and writes in haste."
RECORD = {
    "task_description": GOAL,
    "dataset": "oasst1",
    "turns": [
        {"role": "user", "content": "whats a good knot for a hammock", "metadata": {"lang": "en"}},
        {"role": "assistant", "content": "A bowline. Do you want to know how it is tied?", "metadata": {}},
        {"role": "user", "content": "yes"},
        {"role": "assistant", "content": "Make a loop and lead the end through it."},
        {"role": "user", "content": "ok thx, and the other end of the rope?"},
        {"role": "assistant", "content": "The same knot will do."},
    ],
}
ASKED_FIRST = {
    "task_description": "The user wants to know how to get to the library.",
    "turns": [
        {"role": "assistant", "content": "are you looking for the opening hours of the library"},
        {"role": "user", "content": "no i need directions"},
    ],
}
SIMULATED = ["Which knot holds a hammock?", "Yes please, show me.", "Thank you! What about the second end?"]


def row_of(record=RECORD, index=7, **changes):
    row = TASK.row_type.model_validate({"index": index, **record, **changes})
    TASK.check(row)
    return row


def speaker(turns):
    """A policy that says these turns, one after the other."""
    return lambda messages: turns[sum(m["role"] == "assistant" for m in messages)]


def play(row, policy, feedback=None, task=TASK):
    players = scripted_players(policy if callable(policy) or isinstance(policy, str) else speaker(policy))()
    return asyncio.run(task.play(row, players, feedback)), players


def panel(
    gteval=0.5,
    taken="real",
    human="YES",
    reasoning="Turn 1 is longer.",
    alone="It sounds rehearsed.",
    real_users=None,
):
    """An endpoint that gives the three judgments; `taken`: whose user it takes for the human."""

    def script(request):
        data = request.data
        if "real_conversation" in data:
            return Json({"reasoning": reasoning, "score": gteval})
        if "conversation" in data:
            return Json({"reasoning": alone, "human": human})
        real = "A" if user_turns(data["A"]) in known else "B"
        other = "A" if real == "B" else "B"
        return Json({"reasoning": "?", "human": {"real": real, "simulated": other, "tie": "tie"}[taken]})

    known = [row_of().user_turns, row_of(ASKED_FIRST).user_turns] if real_users is None else real_users
    return FakeOpenAI(script)


def human_norms(values):
    """Mean and sample standard deviation over many writers."""
    measures = list(zip(*values, strict=True))
    return Lexis(*map(statistics.fmean, measures)), Lexis(*map(statistics.stdev, measures))


def verdict_of(row, episode, fake, task=TASK):
    return asyncio.run(task.judge(row, episode, fake_judge(fake, max_attempts=1, max_reasks=0)))
