"""The driver: draft -> verdict -> gate -> feedback -> refined -> verdict, and what a failure at each stage leaves.

Promise under test (design, section 5): draft and refined episode meet the same code, a failure is masked and never a
number, it ends its own session alone, and sessions do not wait for each other.
"""

import asyncio
import json
import math
import time

import pytest
from pydantic import BaseModel

from soul.errors import PolicyFailure
from soul.judge import Contentless
from soul.session import SAID_NOTHING, RefineSettings, run_session
from soul.task_types import Metric, Row, Verdict
from soul.testing import (
    Empty,
    FakeOpenAI,
    Json,
    NotFound,
    Refusal,
    ServerError,
    WrongSchema,
    fake_gateway,
    fake_judge,
    scripted_players,
)
from tests.soul.spoken_task import SpokenTask

pytestmark = pytest.mark.smoke

ALWAYS = RefineSettings()


class Opinion(BaseModel):
    score: float
    critique: str


class Scored(SpokenTask):
    """Says one word; the judge scores it. Writes down what is called, in order."""

    name = "scored"
    headline = Metric("score", low=-3.0)

    def __init__(self):
        self.log = []

    async def play(self, row, players, feedback):
        self.log.append(("play", feedback))
        return await super().play(row, players, feedback)

    async def judge(self, row, episode, judge):
        self.log.append(("judge", episode.answer))
        opinion = await judge.ask(Opinion, "Score.", {"answer": episode.answer}, policy_texts=[episode.answer])
        return Verdict(opinion.score, {"length": float(len(episode.answer))}, opinion.critique)

    async def feedback(self, row, episode, verdict, judge):
        self.log.append(("feedback", verdict.critique))
        return await super().feedback(row, episode, verdict, judge)

    def secrets(self, row):
        return ("abracadabra",)


def opinions(*scores, critique="be warmer"):
    return [Json({"score": score, "critique": critique}) for score in scores]


def run(task, script, settings=ALWAYS, policy=None, **options):
    """One session of a row, its judge answering by the script."""
    policy = policy or (lambda messages: "refined" if "warmer" in messages[-1]["content"] else "draft")
    judge = fake_gateway(script, max_attempts=1, max_reasks=0)
    return asyncio.run(
        run_session(task, Row(index=7), scripted_players(policy), judge, settings, **{"step": 3, **options})
    )


def test_the_order_is_draft_verdict_feedback_refined_verdict():
    task = Scored()
    session = run(task, opinions(0.2, 0.9))
    assert task.log == [
        ("play", None),
        ("judge", "draft"),
        ("feedback", "be warmer"),
        ("play", "be warmer"),
        ("judge", "refined"),
    ]
    assert (session.draft.verdict.reward, session.refined.verdict.reward) == (0.2, 0.9)
    assert (session.task, session.row.index, session.step) == ("scored", 7, 3)
    assert session.draft.valid and session.refined.valid and session.feedback_failure is None


def test_the_refined_seat_gets_the_draft_prompt_as_its_base():
    session = run(Scored(), opinions(0, 1))
    ((draft_messages, draft_base),) = session.draft.players.seats["policy"].heard
    ((messages, base),) = session.refined.players.seats["policy"].heard
    assert draft_messages == draft_base == base
    assert messages != base and "be warmer" in messages[-1]["content"]


# --- the gate


@pytest.mark.parametrize(
    "when, reward, opens",
    [
        ("always", 0.0, True),
        ("always", 1.0, True),
        ("failed", 0.0, True),
        ("failed", 0.99, True),
        ("failed", 1.0, False),
        ("below:0.5", 0.49, True),
        ("below:0.5", 0.5, False),
        ("below:-2", -3.0, True),
        ("below:-2", -1.0, False),
    ],
)
def test_the_gate(when, reward, opens):
    session = run(Scored(), opinions(reward), RefineSettings(when=when))
    assert (session.refined is not None) == opens
    assert (session.feedback is not None) == opens
    assert session.draft.verdict.reward == reward


def test_at_validation_there_is_neither_feedback_nor_a_refined_episode():
    task = Scored()
    session = run(task, opinions(0.1), refine=False)
    assert [what for what, _ in task.log] == ["play", "judge"]
    assert session.feedback is None and session.refined is None and session.feedback_failure is None
    assert session.draft.verdict.reward == 0.1


# --- failures are masked, and end their own session alone


JUDGE_FAULTS = [
    (ServerError(), "server_error"),
    (Refusal(), "refusal"),
    (Empty(), "empty"),
    (WrongSchema(), "invalid"),
    (NotFound(), "not_found"),
]


@pytest.mark.parametrize("fault, cause", JUDGE_FAULTS, ids=[cause for _, cause in JUDGE_FAULTS])
def test_a_draft_that_was_not_judged_has_no_reward(fault, cause):
    session = run(Scored(), fault)
    assert session.draft.verdict is None and not session.draft.valid
    assert (session.draft.failure.stage, session.draft.failure.cause) == ("judge", cause)
    assert session.draft.episode.answer == "draft"  # the trace keeps what was said
    assert session.feedback is None and session.refined is None
    assert session.usage["judge"].failures == {cause: 1}
    assert session.to_record().draft.reward is None


def test_a_refined_episode_that_was_not_judged_leaves_the_draft_valid():
    session = run(Scored(), [*opinions(0.3), Refusal()])
    assert session.draft.verdict.reward == 0.3
    assert session.refined.verdict is None and session.refined.failure.cause == "refusal"


def test_a_feedback_that_fails_leaves_the_draft_valid():
    class Separate(Scored):
        async def feedback(self, row, episode, verdict, judge):
            return (await judge.ask(Opinion, "Advise.", {})).critique

    session = run(Separate(), [*opinions(0.3), Refusal()])
    assert session.draft.valid and session.draft.verdict.reward == 0.3
    assert (session.feedback_failure.stage, session.feedback_failure.cause) == ("feedback", "refusal")
    assert session.feedback is None and session.refined is None


class Faulty(Scored):
    """Raises at one stage."""

    def __init__(self, stage):
        super().__init__()
        self.stage = stage

    def _maybe(self, stage):
        if stage == self.stage:
            raise ZeroDivisionError(f"a bug at {stage}")

    async def play(self, row, players, feedback):
        self._maybe("play" if feedback is None else "replay")
        return await super().play(row, players, feedback)

    async def judge(self, row, episode, judge):
        self._maybe("judge")
        return await super().judge(row, episode, judge)

    async def feedback(self, row, episode, verdict, judge):
        self._maybe("feedback")
        return await super().feedback(row, episode, verdict, judge)

    def secrets(self, row):
        self._maybe("secrets")
        return super().secrets(row)


def failure_of(session):
    refined = session.refined.failure if session.refined else None
    return session.draft.failure or session.feedback_failure or refined


@pytest.mark.parametrize("stage", ["play", "judge", "feedback", "secrets", "replay"])
def test_an_exception_in_a_task_fails_its_session_alone_and_keeps_the_traceback(stage):
    async def both():
        judge = fake_gateway(opinions(0.5))
        players = scripted_players("word")
        return await asyncio.gather(
            run_session(Faulty(stage), Row(index=0), players, judge, ALWAYS),
            run_session(Faulty("nowhere"), Row(index=1), players, judge, ALWAYS),
        )

    broken, healthy = asyncio.run(both())
    failure = failure_of(broken)
    assert failure.cause == "task_error"
    assert f"ZeroDivisionError: a bug at {stage}" in failure.detail
    assert "_maybe" in failure.detail and "test_session.py" in failure.detail
    assert broken.draft.valid == (stage in ("feedback", "secrets", "replay"))
    assert failure_of(healthy) is None and healthy.refined.valid


def test_a_policy_that_cannot_speak_is_a_failure_of_play():
    def broken(messages):
        raise PolicyFailure("too_long", "9000 tokens do not fit")

    session = run(Scored(), opinions(1.0), policy=broken)
    assert (session.draft.failure.stage, session.draft.failure.cause) == ("play", "too_long")
    assert session.draft.episode is None and session.usage == {}


def test_cancelling_a_session_is_not_taken_for_a_failure():
    async def cancelled():
        judge = fake_gateway(Json({"score": 1, "critique": "x"}, delay=30))
        session = asyncio.create_task(run_session(Scored(), Row(index=0), scripted_players("x"), judge, ALWAYS))
        await asyncio.sleep(0.05)
        session.cancel()
        await session

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(cancelled())


# NaN would poison the mean of its group.
@pytest.mark.parametrize("reward", [math.nan, math.inf, -math.inf, 1.5])
def test_a_reward_outside_the_tasks_range_is_masked(reward):
    class NoNumber(Scored):
        async def judge(self, row, episode, judge):
            return Verdict(reward)

    session = run(NoNumber(), opinions(0))
    assert not session.draft.valid
    assert session.draft.failure.cause == "invalid"


# --- the feedback's text


def test_the_secret_is_redacted_before_the_policy_sees_it():
    session = run(Scored(), opinions(0, 1, critique="warmer: think of Abracadabra!"))
    assert session.feedback == "warmer: think of [withheld]!"
    record = session.to_record()
    assert record.redacted == ["Abracadabra"] and record.redactions == 1
    assert "bracadabra" not in json.dumps(session.refined.to_record().seats)


def test_a_feedback_that_is_all_leak_is_a_failure():
    session = run(Scored(), opinions(0.4, critique="Abracadabra, abracadabra."))
    assert (session.feedback_failure.stage, session.feedback_failure.cause) == ("feedback", "leak")
    assert session.feedback is None and session.refined is None
    assert session.redacted == ["Abracadabra", "abracadabra"]
    assert session.draft.verdict.reward == 0.4


def test_reveal_reference_lifts_the_leak_check():
    session = run(Scored(), opinions(0, 1, critique="say abracadabra"), RefineSettings(reveal_reference=True))
    assert session.feedback == "say abracadabra" and session.redacted == []


def test_the_feedback_is_capped():
    session = run(Scored(), opinions(0, 1, critique="warmer " * 5000), RefineSettings(max_feedback_chars=100))
    assert len(session.feedback) == 100
    assert session.refined.valid


@pytest.mark.parametrize("nothing", ["", "  \n", "..."])
def test_an_empty_feedback_is_never_shown(nothing):
    session = run(Scored(), opinions(0, critique=nothing))
    assert session.feedback is None and session.refined is None
    assert session.feedback_failure is not None


# --- a policy that says nothing


def test_a_draft_that_says_nothing_gets_the_lowest_reward_unasked():
    def policy(messages):
        return "I am so glad." if SAID_NOTHING in messages[-1]["content"] else "Solution:"

    fake = FakeOpenAI(opinions(0.5))
    session = run(Scored(), fake, policy=policy)
    assert session.draft.contentless and session.draft.failure is None and not session.refined.contentless
    assert (session.draft.verdict.reward, session.refined.verdict.reward) == (-3.0, 0.5)
    assert session.feedback == SAID_NOTHING and len(fake.requests) == 1 and "so glad" in fake.requests[0].text
    trace = json.loads(session.to_record().to_line())
    assert (trace["draft"]["contentless"], trace["draft"]["reward"], trace["draft"]["failure"]) == (True, -3.0, None)


def test_a_refined_episode_may_say_nothing_too():
    session = run(Scored(), opinions(0.5), policy=lambda messages: ":" if "warmer" in str(messages) else "draft")
    assert (session.refined.contentless, session.refined.verdict.reward) == (True, -3.0)


def test_a_task_decides_what_a_silent_policy_hears():
    class Silent(Scored):
        async def feedback(self, row, episode, verdict, judge):
            return None

    session = run(Silent(), opinions(0.5), policy=lambda messages: "...")
    assert session.draft.contentless and session.refined is session.feedback_failure is None and session.usage == {}


def test_nobody_is_asked_about_nothing():
    fake = FakeOpenAI(Json({"score": 9, "critique": "Well said."}))
    judge = fake_judge(fake)
    for said, min_words in ((["Thought process:"], 1), (["", " "], 1), (["Yes."], 3)):
        with pytest.raises(Contentless):
            asyncio.run(judge.ask(Opinion, "Score.", {"reply": said}, policy_texts=said, min_words=min_words))
    assert not fake.requests and (judge.usage.calls, judge.usage.failures) == (0, {})


def test_the_trace_line_is_json_and_tells_the_whole_story():
    story = json.loads(run(Scored(), opinions(0.2, 0.9)).to_record().to_line())
    assert story["draft"]["reward"] == 0.2 and story["refined"]["reward"] == 0.9
    assert story["draft"]["seats"]["policy"][-1] == {"role": "assistant", "content": "draft"}
    assert story["feedback"] == "be warmer" and story["usage"]["judge"]["calls"] == 2
    draft, refined = story["draft"], story["refined"]
    begun = [draft["started"][stage] for stage in ("play", "judge", "feedback")]
    begun += [refined["started"][stage] for stage in ("play", "judge")]
    assert begun == sorted(begun) and 0 <= time.time() - begun[-1] <= time.time() - begun[0] < 60
    assert draft["seconds"].keys() == draft["started"].keys() and refined["seconds"].keys() == refined["started"].keys()
    failed = json.loads(run(Faulty("play"), opinions(0)).to_record().to_line())
    assert failed["draft"]["valid"] is False and "ZeroDivisionError" in failed["draft"]["failure"]["detail"]
    assert failed["refined"] is None
