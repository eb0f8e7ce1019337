"""A policy that says nothing gets the task's lowest reward, and no judge is asked about it."""

import asyncio
import json

import pytest
from pydantic import BaseModel

from soul.judge import Contentless
from soul.session import SAID_NOTHING, RefineSettings, run_session
from soul.task_types import Metric, Row, Verdict
from soul.testing import FakeOpenAI, Json, fake_gateway, fake_judge, scripted_players
from tests.soul.spoken_task import SpokenTask


class Opinion(BaseModel):
    score: float
    critique: str


def test_nobody_is_asked_about_nothing():
    fake = FakeOpenAI(Json({"score": 9, "critique": "Well said."}))
    judge = fake_judge(fake)
    for said, min_words in ((["Thought process:"], 1), (["", " "], 1), (["Yes."], 3)):
        with pytest.raises(Contentless):
            asyncio.run(judge.ask(Opinion, "Score.", {"reply": said}, policy_texts=said, min_words=min_words))
    assert not fake.requests and (judge.usage.calls, judge.usage.failures) == (0, {})
    assert asyncio.run(judge.ask(Opinion, "Score.", {}, policy_texts=["Yes."])).score == 9


class Spoken(SpokenTask):
    name = "spoken"
    headline = Metric("warmth", low=-5.0, high=5.0)

    async def judge(self, row, episode, judge):
        opinion = await judge.ask(
            Opinion, "Score.", {"reply": episode.answer}, policy_texts=[episode.answer], min_words=3
        )
        return Verdict(opinion.score, {"warmth": opinion.score}, opinion.critique)


class Silent(Spoken):
    async def feedback(self, row, episode, verdict, judge):
        return None


def session_of(task, row, fake, *answers):
    said = iter(answers)
    players = scripted_players(lambda messages: next(said))
    return asyncio.run(run_session(task, row, players, fake_gateway(fake), RefineSettings()))


def test_a_draft_that_says_nothing_gets_the_lowest_reward_unasked():
    fake = FakeOpenAI(Json({"score": 4, "critique": "Well said."}))
    session = session_of(Spoken(), Row(index=0), fake, "Solution:", "I am so glad to see you.")
    assert session.draft.contentless and session.draft.valid and session.draft.failure is None
    assert (session.draft.verdict.reward, session.refined.verdict.reward) == (-5.0, 4.0)
    assert session.feedback == SAID_NOTHING and not session.refined.contentless
    assert len(fake.requests) == 1 and "I am so glad" in fake.requests[0].text
    trace = json.loads(session.to_record().to_line())
    assert (trace["draft"]["contentless"], trace["refined"]["contentless"]) == (True, False)
    assert trace["draft"]["reward"] == -5.0 and trace["draft"]["failure"] is None


def test_the_task_decides_what_a_silent_policy_hears():
    fake = FakeOpenAI(Json({"score": 4, "critique": "Well said."}))
    session = session_of(Silent(), Row(index=0), fake, "...")
    assert session.draft.contentless and session.refined is None and session.feedback_failure is None
    assert not fake.requests and session.usage == {}


def test_a_refined_episode_may_say_nothing_too():
    fake = FakeOpenAI(Json({"score": 4, "critique": "Well said."}))
    session = session_of(Spoken(), Row(index=0), fake, "I am so glad.", ":")
    assert (session.refined.contentless, session.refined.verdict.reward) == (True, -5.0)
    assert len(fake.requests) == 1
