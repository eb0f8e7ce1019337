"""What the tests of CoSER share: a scene of our own, an endpoint that plays all of its other parts, a policy."""

import asyncio
import json
import re

from hypothesis import strategies as st

from soul.session import RefineSettings, run_session
from soul.tasks.coser import CRITICS, DIMENSIONS, MAX_ROUNDS, CoSER
from soul.tasks.coser_stage import END, ENVIRONMENT, Scene, SpokenLine
from soul.testing import FakeOpenAI, Json, Text, fake_gateway, fake_judge, scripted_players

LESSON = "Ada is too meek {braces} 100% <b>: let her bargain."
CIRCUMSTANCE = {
    "book": "The Salt Road",
    "plot": {
        "summary": "In the end Ada sells the lighthouse and drowns.",
        "i_p": 4,
        "key_characters": [
            {"name": "Ada", "description": "Keeper of a lighthouse.", "experience": "She will drown."},
            {"name": "Captain Roe", "description": "A smuggler in debt."},
        ],
    },
    "scenario": "Night on the gallery of the lighthouse. A storm comes up.",
    "topic": "The price of a light",
    "key_characters": [
        {"name": "Ada", "thought": "She wants the money and is ashamed of it."},
        {"name": "Captain Roe", "thought": "He must land before dawn, whatever it costs."},
    ],
    "character_profiles": {
        "Ada": "Ada is proud. She counts every coin. She never begs.",
        "Captain Roe": "Roe laughs too loud. He fears the sea.",
    },
    "dialogues": [
        {
            "character": "Captain Roe",
            "message": "[She knows.] Put out your lamp for one hour, Ada. (holds out a purse)",
        },
        {"character": "Ada", "message": "[God help me.] My father kept that lamp for forty years without a pause."},
        {"character": "Environment", "message": "The wind tears a shutter loose."},
        {"character": "Sailors", "message": "Captain!"},
        {"character": "Ada", "message": "[It is enough.] Double it."},
    ],
    "speaking_characters_w_env": ["Ada", "Captain Roe", "Environment", "Sailors"],
    "major_characters": ["Ada", "Captain Roe"],
}
CAST = ("Ada", "Captain Roe", "Sailors")
TASK = CoSER()
FLAWLESS = {name: [] for name in DIMENSIONS} | {"critique": "Captain Roe should threaten less."}


def row_of(index=7, **changes):
    row = TASK.row_type.model_validate({"index": index, "circumstance": json.dumps({**CIRCUMSTANCE, **changes})})
    TASK.check(row)
    return row


def role(request):
    """Who is asked: "predictor", "narrator", or the dimension whose critic it is."""
    prompts = {"predictor": TASK.predictor, "narrator": TASK.narrator, **CRITICS}
    return next(name for name, prompt in prompts.items() if request.asks(prompt))


def critics(review):
    """What critics answer. `review`: flaws by dimension, and one critique for all."""
    return lambda request: Json({"flaws": review[role(request)], "critique": review["critique"]})


def advice(critique):
    """What the cast gets to hear where all four critics say the same."""
    return "\n".join(f"{name.replace('_', ' ').capitalize()}: {critique}" for name in DIMENSIONS)


def company(speakers, review=FLAWLESS, narration="Thunder rolls."):
    """An endpoint that is predictor, narrator and critic. `speakers`: the predictor's answers, the last one repeats."""

    def script(request):
        if role(request) == "predictor":
            answer = speakers[min(len(request.data["conversation"]), len(speakers)) - 1]
            return Json({"reasoning": "It is their turn.", "next_speaker": answer})
        return Text(narration) if role(request) == "narrator" else critics(review)(request)

    return FakeOpenAI(script)


def in_turn(messages):
    """A policy that tells its part and the number of its turn, and keeps a secret."""
    name = re.search(r"you play (.+?) in a scene", messages[0]["content"]).group(1)
    number = sum(message["role"] == "assistant" for message in messages) + 1
    return f"<think>plan of {name}</think>[secret of {name}] Words {number} of {name}. (nods)"


def play(fake, row=None, policy=in_turn, feedback=None):
    players = scripted_players(policy)()
    players.gateway = fake_gateway(fake, max_attempts=1, max_reasks=0)
    episode = asyncio.run(TASK.play(row or row_of(), players, feedback))
    assert not fake.errors
    return episode, players


def roundabout(*names, then=END):
    return [*(list(names) * MAX_ROUNDS)[: MAX_ROUNDS - 1], then]


def instructions(name, feedback=None, row=None):
    return TASK._instructions(row or row_of(), name, feedback)["content"]


def scene_of(turns, narrations=0, text="You will have to pay me for every single hour."):
    lines = [SpokenLine(CAST[i % 2], text) for i in range(turns)] + [SpokenLine(ENVIRONMENT, "Rain.")] * narrations
    return Scene({"Ada": [{"role": "assistant", "content": text}]}, "closed", tuple(lines))


def judge_data(row, scene=None, fake=None):
    fake = fake or FakeOpenAI(critics(FLAWLESS))
    asyncio.run(TASK.judge(row, scene or scene_of(6), fake_judge(fake)))
    return next(request.data for request in fake.requests if role(request) == "character_fidelity")


def session_of(fake, policy=in_turn, row=None):
    gateway = fake_gateway(fake, max_attempts=1, max_reasks=0)
    return asyncio.run(run_session(TASK, row or row_of(), scripted_players(policy), gateway, RefineSettings()))


# What a policy can write that means something to the stage.
PIECES = st.sampled_from(
    ["[", "]", "(", ")", "\n", " ", "Ada:", "Captain Roe:", "<think>", "</think>", "<|im_end|>", "word", "**", "\u0130"]
)
