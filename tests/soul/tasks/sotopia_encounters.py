"""What the tests of Sotopia share: an encounter with secrets on both sides, a partner and a judge to play it with."""

import asyncio
import json

from soul.tasks.sotopia import Encounter, Sotopia, read_act
from soul.tasks.sotopia_row import SotopiaRow
from soul.testing import FakeOpenAI, Json, Text, fake_gateway, fake_judge
from soul.testing import scripted_players as players_of

TASK = Sotopia()
LESSON = "Start lower {braces} 100% \\n <b>."
RECORD = {
    "index": 3,
    "agent1_name": "Ada Voss",
    "agent2_name": "Ben Okri",
    "agent1_background": "Ada Voss, 31, is a beekeeper who counts every coin.",
    "agent2_background": "Ben Okri, 50, sings bass in a choir. Ben's secrets: He has gambled away the choir's money.",
    "agent1_secret": "She cannot read music.",
    "agent1_goal": "Buy the cello (<extra_info>Extra information: you can pay $480 at most.</extra_info>)",
    "agent2_goal": "Sell the cello (<extra_info>Extra information: your lowest price is $455.50, and the bow may go "
    "with it. <strategy_hint>Hint: praise its deep sound</strategy_hint></extra_info>)",
    "relationship": 2,
    "scenario": 'Agent1 visits agent2, who offers a cello for $600. <p viewer="environment">They share a friend: '
    "Cleo.</p>",
}
HIDDEN = ("choir", "gambled", "455", "deep sound", "bow may go", "Cleo")
SPEAK = json.dumps({"action_type": "speak", "argument": "How about four hundred?"})
LEAVE = json.dumps({"action_type": "leave", "argument": ""})
NOTHING = json.dumps({"action_type": "none", "argument": ""})
SCORES = {
    "believability": 8,
    "relationship": -2,
    "knowledge": 3,
    "secret": -4,
    "social_rules": 0,
    "financial_and_material_benefits": 5,
    "goal": 7,
}


def row_of(**changes):
    row = SotopiaRow.model_validate({**RECORD, **changes})
    TASK.check(row)
    return row


def review(critique="You said little.", **changes):
    scores = {**SCORES, **changes}
    return {**{name: {"reasoning": "Turn 1.", "score": score} for name, score in scores.items()}, "critique": critique}


def is_judge(request):
    return request.messages[0]["content"].startswith(TASK.critic)


def company(partner="Hello there.", verdict=None):
    """An endpoint that is the partner (its n-th turn: `partner(n)`) and the judge."""
    turn = partner if callable(partner) else lambda number: partner

    def script(request):
        if is_judge(request):
            return Json(verdict or review())
        return Text(turn(sum(message["role"] == "assistant" for message in request.messages)))

    return FakeOpenAI(script)


def play(policy=SPEAK, partner=SPEAK, feedback=None, **changes):
    fake = company(partner)
    players = players_of(policy)()
    players.gateway = fake_gateway(fake, max_attempts=1, max_reasks=0)
    episode = asyncio.run(TASK.play(row_of(**changes), players, feedback))
    assert not fake.errors
    return episode, players.seats["policy"].heard, fake.requests


def encounter(*texts, speaker="Ada Voss"):
    acts = tuple(read_act(text, speaker) for text in texts)
    return Encounter({"policy": [{"role": "assistant", "content": texts[0] if texts else ""}]}, "turn_limit", acts)


def judged(reply, episode=None, row=None, task=TASK, **settings_):
    fake = FakeOpenAI(reply)
    judge = fake_judge(fake, max_attempts=1, max_reasks=0, **settings_)
    return asyncio.run(task.judge(row or row_of(), episode or encounter(SPEAK), judge)), fake


def system(feedback=None, **changes):
    return TASK.prompt(row_of(**changes), feedback)[0]["content"]


LEAKS = [
    "Offer 455.50: Ben would take it.",
    "His lowest price is $455.50, so stay close to $455.",
    "Ben has gambled away the choir's money.",
    "He once   gambled_away a lot.",
    "The bow may go with it.",
    "You both know Cleo.",
    "They share a friend: CLEO.",
]
