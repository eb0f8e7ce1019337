"""A task of two functions is played, scored and criticised like any other."""

import asyncio

from soul.function_task import PromptRow, function_task
from soul.session import RefineSettings, run_session
from soul.testing.doubles import fake_gateway, scripted_players
from soul.testing.replies import Json

ROW = PromptRow.model_validate({"index": 0, "prompt": "Where do ships sleep?", "answer": "harbour", "bonus": 0.5})


def reward(row: PromptRow, text: str) -> float:
    return row.bonus * (row.answer in text)  # type: ignore[attr-defined]


def critique(row: PromptRow, text: str) -> str:
    return f"You wrote {len(text.split())} words. Think of water."


def play(task, judge):
    def policy(messages):
        return "in the harbour" if "coach" in messages[-1]["content"] else "in a bed"

    gateway = fake_gateway(judge)
    return asyncio.run(run_session(task, ROW, scripted_players(policy), gateway, RefineSettings(), refine=True))


def no_judge(request):
    raise AssertionError("functions score and criticise: no model is asked")


def test_both_functions_are_called() -> None:
    session = play(function_task("places", reward, critique)(), no_judge)
    assert session.draft.verdict.reward == 0.0 and session.refined.verdict.reward == 0.5
    assert session.feedback == "You wrote 3 words. Think of water."


def test_a_model_writes_the_critique_where_no_function_does() -> None:
    session = play(function_task("places", reward)(), lambda request: Json({"critique": "Think of water."}))
    assert session.feedback == "Think of water." and session.refined.verdict.metrics == {"reward": 0.5}
