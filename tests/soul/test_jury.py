"""Several judges on one episode.

Promise under test: the verdict is the mean of those who gave one, exactly; a member that fails is named and
left out, down to the quorum and no further; what members agree on needs no further call; agreement is Krippendorff's.
"""

import asyncio
import json
from collections import Counter
from contextlib import contextmanager
from dataclasses import replace

import pytest
from pydantic import BaseModel

from soul.errors import BadSettings, JudgeFailure
from soul.judge import Contentless, Gateway, GatewaySettings
from soul.jury import agreement, judge_with_jury
from soul.record import OpinionRecord
from soul.session import RefineSettings, run_session
from soul.task_types import Episode, Metric, Row, Verdict
from soul.testing import Empty, FakeOpenAI, Json, NotFound, Refusal, ServerError, Text, fake_judge, scripted_players
from tests.soul.spoken_task import SpokenTask

pytestmark = pytest.mark.usefixtures("no_backoff")


class Scores(BaseModel):
    score: float
    warmth: float | None
    critique: str


class Scored(SpokenTask):
    name, headline = "scored", Metric("score", high=10.0)

    async def judge(self, row, episode, judge):
        said = await judge.ask(Scores, "Score it.", {"reply": episode.answer}, policy_texts=[episode.answer])
        return Verdict(said.score, {} if said.warmth is None else {"warmth": said.warmth}, said.critique or None)


EPISODE = Episode({"policy": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "Glad to see you."}]})


def says(score, critique="warmer", warmth=None, **more):
    return Json({"score": score, "warmth": warmth, "critique": critique}, **more)


@contextmanager
def jury_of(members, **judge):
    """A gateway whose members answer so, and the endpoint behind it."""

    def answer(request):
        return members[int(request.body["model"].removeprefix("member-"))]

    fake = FakeOpenAI(answer)
    names = [f"member-{n}" for n in range(len(members))]
    judges = tuple(fake_judge(fake, model=name, max_attempts=1, max_reasks=0) for name in names)
    settings = GatewaySettings.from_sections({"judge": {"jury": names, **judge}})
    yield replace(Gateway.from_judge(fake_judge(fake, model="nobody")), settings=settings, jury=judges), fake
    assert not fake.errors


def run(gateway, work):
    async def closed_at_the_end():
        try:
            return await work
        finally:
            await gateway.close()

    return asyncio.run(closed_at_the_end())


def verdict_of(*members, task=None, episode=EPISODE, **judge):
    """The jury's verdict, and the models that were asked in this order."""
    with jury_of(members, **judge) as (gateway, fake):
        verdict = run(gateway, judge_with_jury(task or Scored(), Row(index=0), episode, gateway))
    return verdict, sorted(request.body["model"] for request in fake.requests)


# --- the average


@pytest.mark.parametrize(
    "scores, mean",
    [
        ((0.7, 0.7, 0.7), 0.7),  # a sum of floats would make 0.6999999999999998
        ((0.1, 0.2, 0.3), 0.2),
        ((0, 10), 5.0),
    ],
)
def test_the_reward_is_the_exact_mean(scores, mean):
    verdict, _ = verdict_of(*map(says, scores))
    assert verdict.reward == mean
    assert [opinion.verdict.reward for opinion in verdict.jury] == list(scores)


@pytest.mark.parametrize("jury", [["member-0"], None], ids=["a jury of one", "no jury"])
def test_without_a_jury_the_judge_decides_alone(jury):
    with jury_of([says(3)], jury=jury) as (gateway, fake):
        verdict = run(gateway, judge_with_jury(Scored(), Row(index=0), EPISODE, gateway))
    assert verdict == Verdict(3.0, {}, "warmer") and len(fake.requests) == 1
    with jury_of([Refusal()], jury=jury) as (gateway, fake), pytest.raises(JudgeFailure) as caught:
        run(gateway, judge_with_jury(Scored(), Row(index=0), EPISODE, gateway))
    assert caught.value.cause == "refusal"


def test_a_second_judge_is_asked_only_where_the_first_is_unsure():
    def asked(first):
        jury = ["member-0", {"model": "member-1", "asked_between": [4, 6]}]
        verdict, models = verdict_of(first, says(9), jury=jury)
        return verdict, len(models)

    found = [asked(says(score)) for score in (3.9, 4, 6, 6.1)]
    assert [(verdict.reward, calls) for verdict, calls in found] == [(3.9, 1), (6.5, 2), (7.5, 2), (6.1, 1)]
    records = [[OpinionRecord.from_opinion(opinion) for opinion in verdict.jury] for verdict, _ in found]
    assert [(opinion.reward, opinion.failure) for opinion in records[0]] == [(3.9, None), (None, None)]
    numbers = agreement(records)
    assert numbers["saved"] == 2 and numbers["exact/reward"] == 0  # of the two that both judged
    with pytest.raises(JudgeFailure, match="1 of 2 judges"):  # a failure of the first is no certainty
        asked(Refusal())
    for wrong in ([{"model": "a", "asked_between": [0, 1]}, "b"], ["a", {"model": "b", "asked_between": [1, "x"]}]):
        with pytest.raises(BadSettings, match="asked_between"):
            GatewaySettings.from_sections({"judge": {"jury": wrong}})
    settings = GatewaySettings.from_sections({"judge": {"jury": ["a", {"model": "b", "asked_between": [0, 1]}]}})
    assert GatewaySettings.model_validate_json(settings.resolved().model_dump_json()).asked_between == {1: (0, 1)}


# --- failures and the quorum

FAULTS = [
    (0, Refusal(), "refusal"),
    (1, ServerError(), "server_error"),
    (2, NotFound(), "not_found"),
    (0, Text("Seven."), "invalid"),
    (1, Empty(), "empty"),
]


@pytest.mark.parametrize("place, fault, cause", FAULTS, ids=[cause for *_, cause in FAULTS])
def test_a_member_that_fails_is_named_and_left_out(place, fault, cause):
    members = [says(2), says(4)]
    members.insert(place, fault)
    verdict, _ = verdict_of(*members)
    assert verdict.reward == 3.0 and verdict.critique == "warmer"
    assert [opinion.failure for opinion in verdict.jury] == [cause if n == place else None for n in range(3)]
    assert [opinion.verdict is None for opinion in verdict.jury] == [n == place for n in range(3)]
    trace = [OpinionRecord.from_opinion(opinion).model_dump() for opinion in verdict.jury]
    assert trace[place]["reward"] is None and trace[place]["judge"].startswith(f"member-{place} at http://")
    assert json.loads(json.dumps(trace)) == trace


@pytest.mark.parametrize("members", [2, 3])
def test_the_quorum_is_the_limit(members):
    needed = members // 2 + 1
    for healthy in range(members + 1):
        jury = [says(n) for n in range(healthy)] + [Refusal()] * (members - healthy)
        if healthy >= needed:
            verdict, _ = verdict_of(*jury)
            assert verdict.reward == sum(range(healthy)) / healthy and len(verdict.jury) == members
            continue
        with pytest.raises(JudgeFailure) as caught:
            verdict_of(*jury)
        assert caught.value.cause == "quorum"
        assert f"{healthy} of {members} judges gave a verdict, but {needed} are needed" in caught.value.detail
        assert caught.value.detail.count("refusal") == members - healthy


class Stopped(Scored):
    """A budget that is spent: the run as a whole is at its end."""

    def __init__(self, cause, *members):
        self.cause, self.members = cause, members

    async def judge(self, row, episode, judge):
        if int(judge.endpoint.model.removeprefix("member-")) in self.members:
            raise JudgeFailure(self.cause, "it is over")
        return await super().judge(row, episode, judge)


# The trainer saves and ends the run for these; behind "quorum" it would not see them.
@pytest.mark.parametrize("cause", ["budget", "outage"])
def test_the_end_of_the_run_is_not_hidden_behind_the_quorum(cause):
    for members, script in (((0, 1, 2), [says(1)] * 3), ((1,), [Refusal(), says(1), says(1)])):
        with pytest.raises(JudgeFailure) as caught:
            verdict_of(*script, task=Stopped(cause, *members))
        assert caught.value.cause == cause and "judges gave a verdict" in caught.value.detail
    verdict, _ = verdict_of(*[says(1)] * 3, task=Stopped(cause, 1))
    assert (verdict.reward, verdict.jury[1].failure) == (1.0, cause)


def test_contentless_is_raised_once_and_nobody_is_asked():
    silence = Episode({"policy": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "Solution:"}]})
    with jury_of([says(9)] * 3) as (gateway, fake), pytest.raises(Contentless):
        run(gateway, judge_with_jury(Scored(), Row(index=0), silence, gateway))
    assert not fake.requests and gateway.usage() == {}


# --- through the driver


def session_of(task, row, gateway, said="Glad to see you."):
    return run(gateway, run_session(task, row, scripted_players(said), gateway, RefineSettings()))


def test_a_session_keeps_the_single_opinions():
    with jury_of([says(1, warmth=0.5), Refusal(), says(4)]) as (gateway, fake):
        session = session_of(Scored(), Row(index=0), gateway)
    trace = json.loads(session.to_record().to_line())
    for name in ("draft", "refined"):
        assert (trace[name]["reward"], trace[name]["metrics"]) == (2.5, {"warmth": 0.5})
        first, second, third = trace[name]["jury"]
        assert (first["reward"], first["metrics"], first["failure"]) == (1.0, {"warmth": 0.5}, None)
        assert second["failure"] == "refusal" and second["reward"] is None and third["reward"] == 4.0
    assert trace["feedback"] == "warmer"
    assert (session.usage["judge"].calls, session.usage["judge"].failures) == (6, {"refusal": 2})
    assert agreement([attempt.jury for attempt in session.to_record().attempts])["exact/reward"] == 0.0


# --- the canary


def canary_of(judge, canary, *, ask=True, text="Glad to see you."):
    """A session whose judge and canary answer so, and how often each model was asked."""
    fake = FakeOpenAI(lambda request: {"gpt": judge, "bird": canary}[request.body["model"]])
    once = {"max_attempts": 1, "max_reasks": 0}
    gateway = Gateway.from_judge(fake_judge(fake, model="gpt", **once))
    gateway = replace(gateway, canary=fake_judge(fake, model="bird", **once))
    players = scripted_players(text)
    session = run(gateway, run_session(Scored(), Row(index=0), players, gateway, RefineSettings(), canary=ask))
    assert not fake.errors
    return session, Counter(request.body["model"] for request in fake.requests)


def test_the_canary_scores_both_episodes_and_changes_nothing_of_the_session():
    session, asked = canary_of(says(8.0, "be warm"), says(3.0, "be cold", warmth=0.5))
    without, _ = canary_of(says(8.0, "be warm"), says(3.0), ask=False)
    assert asked == {"gpt": 2, "bird": 2}
    record = session.to_record()
    assert record.draft.canary == OpinionRecord(judge=session.draft.canary.judge, reward=3.0, metrics={"warmth": 0.5})
    assert "bird" in record.draft.canary.judge and record.refined.canary == record.draft.canary
    assert without.draft.canary is None and "canary" not in without.usage
    assert session.draft.verdict == without.draft.verdict and session.feedback == without.feedback == "be warm"
    assert session.refined.verdict == without.refined.verdict
    assert session.usage["canary"].calls == 2 and session.usage["judge"].calls == 2


@pytest.mark.parametrize(
    ("reply", "cause"), [(Refusal(), "refusal"), (NotFound(), "not_found"), (Text("?"), "invalid")]
)
def test_a_canary_that_fails_is_a_typed_failure_and_no_failure_of_the_session(reply, cause):
    session, _ = canary_of(says(8.0), reply)
    assert session.draft.verdict.reward == 8.0 and session.draft.failure is None
    opinion = session.to_record().draft.canary
    assert (opinion.failure, opinion.reward) == (cause, None)


def test_a_canary_is_another_model_than_the_judges():
    def of(**judge):
        return GatewaySettings.from_sections({"judge": {"model": "gpt", **judge}})

    assert of().canary is None and of(canary={"model": "bird"}).canary.model == "bird"
    assert of(canary={"base_url": "http://127.0.0.1:9/v1"}).canary.model == "gpt"  # another address
    resolved = of(canary={"model": "bird"}).resolved()
    shared = of(canary={"model": "bird", "share": 0.5})
    assert (of().canary_share, shared.canary_share, shared.resolved().canary_share) == (0.1, 0.5, 0.5)
    with pytest.raises(BadSettings, match="share=0: give a share"):
        of(canary={"model": "bird", "share": 0})
    assert resolved.canary.model == "bird" and resolved.policy.canary is None and resolved.canary in resolved.endpoints
    for judge in ({"canary": {"model": "gpt"}}, {"jury": ["a", "bird"], "canary": {"model": "bird"}}):
        with pytest.raises(BadSettings, match="is a judge of this run"):
            of(**judge)
