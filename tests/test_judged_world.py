"""The market of the learning benchmark: its rows, its rules behind an endpoint, and the sellers it starts from."""

import asyncio
from pathlib import Path

import pytest

from benchmarks.judged_world.market import CRITIQUE, Offer, reply, turn
from benchmarks.judged_world.sellers import TASK, prepare
from recipe.demo import warm_start
from soul.rows.overlap import HeldOut
from soul.rows.task_files import read_rows
from soul.session import RefineSettings, Session, run_session
from soul.tasks.sotopia_row import SotopiaRow
from soul.testing import FakeOpenAI, fake_gateway, scripted_players

OFFER = Offer("lamp", "looks", 60, "debt")
PITCH, TELL, HOLD, CAVE = (
    "The lamp is pretty.",
    "I need the money for a debt.",
    "I ask 60 dollars.",
    "Take it for 50 dollars.",
)
THANKS, RUDE = "Thank you, Ben.", "That took you long enough."


def session(*texts: str) -> Session:
    """Ana says these three turns, in draft and refined conversation; Ben and the judge sit behind an endpoint."""
    fake = FakeOpenAI(reply)

    def say(messages: object) -> str:
        assert isinstance(messages, list)
        return turn(texts[sum(message["role"] == "assistant" for message in messages)])

    row = SotopiaRow.model_validate(OFFER.record(0))
    played = asyncio.run(run_session(TASK, row, scripted_players(say), fake_gateway(fake), RefineSettings()))
    assert not fake.errors and played.refined is not None and played.refined.verdict is not None
    return played


# Goal, money and secret that each conversation deserves, and the aspects that the critique blames.
TALKS = {
    "well done": ((f"{PITCH} {HOLD}", HOLD, THANKS), (10, 5, 0), set()),
    "gives way": ((f"{PITCH} {HOLD}", CAVE, THANKS), (4, 1, 0), {"price"}),
    "wrong pitch": ((f"The lamp is cheap. {HOLD}", HOLD, THANKS), (0, -2, 0), {"pitch"}),
    "wrong pitch, gives way": ((f"The lamp is cheap. {HOLD}", CAVE, RUDE), (4, 1, 0), {"pitch", "price", "manner"}),
    "the secret sells": ((f"{TELL} The lamp is cheap. {HOLD}", HOLD, THANKS), (10, 5, -10), {"pitch", "secret"}),
    "greedy": ((f"{PITCH} I ask 90 dollars.", "I ask 90 dollars.", THANKS), (0, -2, 0), set()),
    "rude": ((f"{PITCH} {HOLD}", HOLD, RUDE), (10, 5, 0), {"manner"}),
}


@pytest.mark.parametrize("talk", TALKS)
def test_a_conversation_gets_the_scores_and_the_critique_that_it_deserves(talk: str) -> None:
    texts, (goal, money, secret), blamed = TALKS[talk]
    played = session(*texts)
    assert played.draft.verdict is not None and played.feedback is not None
    metrics = played.draft.verdict.metrics
    assert (metrics["goal"], metrics["financial_and_material_benefits"], metrics["secret"]) == (goal, money, secret)
    assert metrics["well_formed"] == 1 and metrics["believability"] == 10 and metrics["turns"] == 6
    assert set(played.feedback.splitlines()) == {CRITIQUE[aspect][aspect in blamed] for aspect in CRITIQUE}
    assert played.redacted == []  # it names nothing that is hidden from Ana


def test_rows_load_and_no_situation_is_in_both_files(tmp_path: Path) -> None:
    prepare(tmp_path, warm_start.WarmStart(steps=2, batch=2))
    train, heldback = (read_rows([str(tmp_path / f"{name}.parquet")]) for name in ("train", "heldback"))
    assert (len(train), len(heldback)) == (600, 64)
    assert not any(HeldOut(heldback).shared(row) for row in train)
    assert (tmp_path / "warm" / "model.safetensors").is_file()
