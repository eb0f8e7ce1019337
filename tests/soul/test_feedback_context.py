"""A draft's conversation with feedback in its prompt: of every task of SOUL, without a second episode."""

import asyncio

import pytest

from soul import examples
from soul.examples.endpoint import answer
from soul.feedback_context import FeedbackContext
from soul.session import RefineSettings, Session, run_session
from soul.testing import FakeOpenAI, fake_gateway, scripted_players
from tests.soul.samples import TASKS

FEEDBACK = RefineSettings(max_feedback_chars=500)


def session_of(name: str) -> Session:
    """A session of an example row that asks for contexts alone."""
    example = examples.load(name)
    row = example.row(0)
    players = scripted_players(example.player("random", row, 0))
    gateway = fake_gateway(FakeOpenAI(answer))
    return asyncio.run(run_session(example.task, row, players, gateway, FEEDBACK, refine=False, contexts=True))


@pytest.mark.parametrize("name", TASKS)
def test_every_seat_of_the_draft_has_its_prompt_with_the_feedback(name: str) -> None:
    session = session_of(name)
    assert session.draft.episode is not None and session.refined is None
    assert session.feedback is not None, session.feedback_failure
    for seat, messages in session.draft.episode.seats.items():
        turns = [i for i, message in enumerate(messages) if message["role"] == "assistant"]
        if not turns:
            continue
        opening = list(messages[: turns[0]])
        context = session.contexts[seat]
        with_feedback = context.applied_to(opening)
        assert with_feedback is not None
        first_line = session.feedback.splitlines()[0]
        assert first_line in "".join(message["content"] for message in with_feedback)
        assert first_line not in "".join(message["content"] for message in opening)
        assert context.applied_to(with_feedback) is None  # it does not begin with the instructions of the base context


def test_what_others_said_first_stays_as_it_was_in_the_draft() -> None:
    system, lesson = {"role": "system", "content": "Play."}, {"role": "system", "content": "Play. Be warm."}
    hello, other = {"role": "user", "content": "Hello."}, {"role": "user", "content": "Hi there."}
    context = FeedbackContext([system, other], [lesson, other])
    assert context.applied_to([system, hello]) == [lesson, hello]
    assert context.applied_to([hello]) is None
