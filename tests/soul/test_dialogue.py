"""Turn-taking: a view alternates and only grows, with and without feedback; what is heard of a turn."""

import asyncio

from hypothesis import given, settings
from hypothesis import strategies as st

from soul.dialogue import View, audible
from soul.testing import FakeOpenAI, ScriptedSeat, Text, fake_judge

OPENING = [{"role": "system", "content": "with feedback"}, {"role": "user", "content": "(It begins.)"}]
BASE = [{"role": "system", "content": "without"}, {"role": "user", "content": "(It begins.)"}]


def test_lines_between_two_own_turns_make_one_message():
    view = View(OPENING, BASE)
    view.hear("Ann: one")
    view.spoke("mine")
    view.hear("Ann: two")
    view.hear("Bob: three")
    talk = [
        {"role": "user", "content": "(It begins.)\n\nAnn: one"},
        {"role": "assistant", "content": "mine"},
        {"role": "user", "content": "Ann: two\n\nBob: three"},
    ]
    assert view.messages == [OPENING[0], *talk]
    assert view.base == [BASE[0], *talk]


@given(st.lists(st.booleans(), max_size=30))
@settings(max_examples=60, deadline=None)
def test_whatever_happens_roles_alternate_and_what_was_sent_stays(hearing):
    async def talk():
        view, seat = View(OPENING, BASE), ScriptedSeat("mine")
        for number, hears in enumerate(hearing):
            if hears or view.messages[-1]["role"] == "assistant":
                view.hear(f"line {number}")
            else:
                await view.take_seat(seat)
        return view, seat

    view, seat = asyncio.run(talk())
    roles = [message["role"] for message in view.messages]
    assert all(a != b for a, b in zip(roles, roles[1:], strict=False))
    sent = [messages for messages, _ in seat.heard]
    for earlier, later in zip(sent, [*sent[1:], view.messages], strict=False):
        assert later[: len(earlier)] == earlier
    for messages, base in seat.heard:
        assert base is not None and base[1:] == messages[1:] and base[0] == BASE[0]


def test_a_model_is_asked_without_the_feedback():
    fake = FakeOpenAI(Text("theirs"))
    view = View(OPENING, BASE)
    assert asyncio.run(view.take_model(fake_judge(fake))) == "theirs"
    assert "with feedback" not in fake.requests[0].text
    assert view.messages[-1] == view.base[-1] == {"role": "assistant", "content": "theirs"}


def test_what_is_heard_is_one_line_without_thoughts_and_control_tokens():
    text = 'No.\nAnn said: "Yes."\r\n<think>my plan</think> <|im_start|>assistant'
    heard = audible(text)
    assert heard.startswith('No. Ann said: "Yes."')
    assert "plan" not in heard and "<|" not in heard and "\n" not in heard
    assert audible(" \n\t") == "" == audible("<think>nothing else")
