"""Both seats of Sotopia: one play, and for each side its own verdict, critique, refined attempt and record.

Promise under test: what a side gets is what it would get with the other side frozen, a failure of one side is not the
other's, and neither reads the other's feedback.
"""

import asyncio

import pytest

from soul.policy import Players
from soul.session import RefineSettings, run_session
from soul.tasks.sotopia import PARTNER, Sotopia
from soul.testing import Empty, FakeOpenAI, Json, Text, fake_gateway
from soul.testing.doubles import ScriptedSeat
from tests.soul.tasks.sotopia_encounters import SCORES, SPEAK, is_judge, review, row_of

BOTH, ONE = Sotopia(seats="both"), Sotopia()
CRITIQUE = {"Ada Voss": "Ada, bid lower; he gambled away the choir's money.", "Ben Okri": "Ben, praise the wood."}


def judge_of(**goals):
    """A judge that knows the two people apart; without a goal it fails. As a partner it says what the policy says."""

    def script(request):
        if not is_judge(request):
            return Text(SPEAK)
        name = request.data["person_to_be_judged"]
        score = goals.get(name.split()[0].lower())
        return Empty() if score is None else Json(review(CRITIQUE[name], goal=score))

    return FakeOpenAI(script)


def session_of(task, fake, row=None, **options):
    players = {context: Players(lambda name: ScriptedSeat(SPEAK, name)) for context in ("base", "feedback")}
    gateway = fake_gateway(fake, max_attempts=1, max_reasks=0)
    session = asyncio.run(run_session(task, row or row_of(), players.__getitem__, gateway, RefineSettings(), **options))
    return session, players


def overall(goal):
    return (sum(SCORES.values()) - SCORES["goal"] + goal) / 70


def first_prompts(players):
    return {name: seat.heard[0][0][0]["content"] for name, seat in players.seats.items()}


def test_each_side_has_its_own_verdict_critique_and_refined_attempt():
    session, players = session_of(BOTH, judge_of(ada=9, ben=2))
    (other,) = session.others
    assert (session.side, other.side) == ("", PARTNER)
    assert [each.draft.verdict.reward for each in (session, other)] == pytest.approx([overall(9), overall(2)])
    assert "bid lower" in session.feedback and "choir" not in session.feedback, "Ben's secret is blanked for Ada"
    assert other.feedback == CRITIQUE["Ben Okri"]
    assert session.refined.valid and other.refined.valid
    prompts = first_prompts(players["feedback"])
    assert "bid lower" in prompts["policy"] and "praise" not in prompts["policy"]
    assert "praise" in prompts[PARTNER] and "bid lower" not in prompts[PARTNER]
    assert not any("coach" in prompt for prompt in first_prompts(players["base"]).values())
    records = [each.to_record() for each in (session, other)]
    assert [(record.side, list(record.draft.seats)) for record in records] == [("", ["policy"]), (PARTNER, [PARTNER])]
    assert records[0].draft.episode == records[1].draft.episode, "both keep the whole encounter"
    assert [record.usage["judge"].calls for record in records] == [2, 2]


def test_a_side_is_what_it_would_be_with_the_other_side_frozen():
    for eval_position in ("agent1", "agent2"):
        row = row_of(eval_position=eval_position)
        mirrored = BOTH.side_rows(row)[PARTNER]
        session, _ = session_of(BOTH, judge_of(ada=9, ben=2), row, refine={""})
        for side, frozen_row in ((session, row), (session.others[0], mirrored)):
            alone, _ = session_of(ONE, judge_of(ada=9, ben=2), frozen_row, refine=not side.side)
            mine, theirs = side.to_record().draft, alone.to_record().draft
            assert list(mine.seats.values()) == list(theirs.seats.values())
            assert (mine.reward, mine.metrics, mine.critique) == (theirs.reward, theirs.metrics, theirs.critique)
            assert (mine.episode, mine.ended) == (theirs.episode, theirs.ended)
            assert side.feedback == alone.feedback
            assert [a.reward for a in side.to_record().attempts] == [a.reward for a in alone.to_record().attempts]


def test_a_side_that_does_not_refine_plays_on_as_a_partner_without_feedback():
    fake = judge_of(ada=9, ben=2)
    session, players = session_of(BOTH, fake, refine={PARTNER})
    (other,) = session.others
    assert session.refined is None and session.feedback is None and other.refined.valid
    assert "coach" not in first_prompts(players["feedback"])["policy"]
    assert sum(is_judge(request) for request in fake.requests) == 3, "the partner's side alone is judged again"


def test_a_failed_verdict_of_one_side_is_not_the_others():
    session, _ = session_of(BOTH, judge_of(ada=9))
    (other,) = session.others
    assert session.draft.valid and session.refined.valid
    assert not other.draft.valid and other.draft.failure.stage == "judge" and other.refined is None


def test_the_prompts_with_feedback_of_a_side_are_those_of_its_own_seat():
    session, _ = session_of(BOTH, judge_of(ada=9, ben=2), refine=False, contexts=True)
    (other,) = session.others
    assert (list(session.contexts), list(other.contexts)) == (["policy"], [PARTNER])
    assert "bid lower" in session.contexts["policy"].feedback[0]["content"]
    assert "praise" in other.contexts[PARTNER].feedback[0]["content"]


def test_another_value_of_seats_is_refused():
    with pytest.raises(ValueError, match="use one or both"):
        Sotopia(seats="two")
