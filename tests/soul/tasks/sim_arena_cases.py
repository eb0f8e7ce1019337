"""What the tests of SimulatorArena share: a row of each kind, scripted policies, one endpoint for all roles."""

import asyncio
import json

import pytest

from soul.tasks.sim_arena import SimArenaDoc, SimArenaMath
from soul.testing import FakeOpenAI, Json, Text, fake_gateway, fake_judge, scripted_players

LESSON = "Ask for less at a time {braces} 100% <b>."
HESITANT = {
    "Feature Name": "Hedging",
    "Feature Question": "Is the student sure?",
    "Feature Question Answer": "Hardly ever sure.",
}
LAZY = {
    "Feature Name": "Work sharing",
    "Feature Question": "Who does the work?",
    "Feature Question Answer": "The tutor.",
}
MATH = {
    "index": 3,
    "problem": "Find the greatest prime factor of 221.",
    "user_profile_text": "Level: middle school\nPrime numbers: struggling",
    "human_user_queries": ["how do i even begin with this one", "13", "ok so 17 is the biggest i guess. thx"],
    "human_public_conversation": json.dumps(
        [{"role": "user", "content": "how do i even begin with this one"}, {"role": "assistant", "content": "T" * 4000}]
    ),
    "target_interaction_style_features": json.dumps([HESITANT, LAZY]),
}
DOC = {
    "index": 4,
    "document_type": "email",
    "intent": "Complain to the landlord about the heating.",
    "pre_writing_materials_text": "- Since when?\n  Three weeks.",
    "user_profile_text": "Formality Level: curt",
    "human_user_queries": ["write a mail to my landlord please", "shorter and meaner"],
    "human_public_conversation": "user: write a mail to my landlord please",
    "target_writing_style_features": [HESITANT],
    "target_interaction_style_features": [LAZY],
    "target_document_preferences": json.dumps(
        [
            {
                "Preference Name": "Tone",
                "Preference Question": "Friendly?",
                "Preference Question Answer": "Angry, no pleasantries.",
            }
        ]
    ),
}
TASKS = {"math": (SimArenaMath(), MATH, "Query:"), "doc": (SimArenaDoc(), DOC, "Message:")}
each_task = pytest.mark.parametrize("kind", TASKS)


def row_of(kind, **changes):
    task, record, _ = TASKS[kind]
    row = task.row_type.model_validate({**record, **changes})
    task.check(row)
    return row


def opinion(request, writing=4, interaction=2, fulfilled=(True, False), rating=7, critique="Write shorter."):
    """A valid answer of the judge, with the features that the question names."""
    style = {"key_differences": ["length"]}
    data, answer = request.data, {}
    answer["writing_style"] = {**style, "similarity": writing}
    answer["interaction_style"] = {**style, "similarity": interaction}
    for part in ("writing_features", "interaction_features"):
        if part in data:
            marks = [fulfilled[number % len(fulfilled)] for number in range(len(data[part]))]
            answer[part] = {k: {"analysis": "a", "fulfilled": m} for k, m in zip(data[part], marks, strict=True)}
    if "final_document" in data:
        answer["document"] = {"analysis": "a", "rating": rating}
    return {**answer, "critique": critique}


def is_judging(request):
    return "response_format" in request.body


def everybody(reply="Go on.", **scores):
    """One endpoint for all roles: judges are told by the form they ask for."""
    return FakeOpenAI(lambda request: Json(opinion(request, **scores)) if is_judging(request) else Text(reply))


def play(kind, policy, feedback=None, fake=None, row=None):
    fake = fake or everybody()
    players = scripted_players(policy)()
    players.gateway = fake_gateway(fake, max_attempts=1, max_reasks=0)
    episode = asyncio.run(TASKS[kind][0].play(row or row_of(kind), players, feedback))
    return episode, players.seats["policy"].heard, [r.messages for r in fake.requests if not is_judging(r)]


def judged(kind, episode, script=None, row=None, **scores):
    judge = fake_judge(script or everybody(**scores), max_attempts=1, max_reasks=0)
    return asyncio.run(TASKS[kind][0].judge(row or row_of(kind), episode, judge))


def scripted(*turns):
    """A policy that says these turns in order."""
    return lambda messages: turns[sum(m["role"] == "assistant" for m in messages)]


def short(kind, words="and now"):
    """A conversation of one message."""
    return f"{TASKS[kind][2]} {words}\nterminate conversation"
