"""The contract that every task must fulfil, as checks for your tests.

    from soul.examples.contract import CHECKS

    @pytest.mark.parametrize("check", CHECKS)
    def test_contract(check):
        example = MyExample()
        check(example, example.row(0))

Each check plays the row through the driver with an example's players against an in-process endpoint, and raises
AssertionError if the task violates the contract.
"""

import asyncio
import math
import random
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from soul.examples import Example
from soul.examples.endpoint import answer
from soul.examples.example import Player, Style, always, babble
from soul.message import Message
from soul.session import RefineSettings, Session, run_session
from soul.task_types import Row
from soul.testing.doubles import fake_gateway, scripted_players
from soul.testing.replies import ChatRequest, Json, Reply, Script
from soul.testing.server import FakeOpenAI

LESSON = "Say less of this, and {more} of that: 100% \\n <b>."
SILENCE = ("", " \n\t", "Thought process:", ":", "<think>I would rather not.</think>", "<answer></answer>")
ODD = ("{}", "[", '{"action_type": 3}', "<answer>" * 50, "\ud83d", "A" * 5000, "%s {x}")
_TAG = re.compile(r"</?\w+>")
Check = Callable[[Example[Any], Any], None]


async def played(
    example: Example[Any],
    row: Row,
    player: Player,
    script: Script | FakeOpenAI = answer,
    *,
    refine: bool = True,
) -> Session:
    """Run one session of the row in process. Raises AssertionError if the task's code raised an exception."""
    gateway = fake_gateway(script, max_attempts=1, max_reasks=0)
    settings = RefineSettings(max_feedback_chars=100_000)
    session = await run_session(example.task, row, scripted_players(player), gateway, settings, refine=refine)
    attempts = [attempt for attempt in (session.draft, session.refined) if attempt is not None]
    for failure in (session.feedback_failure, *(attempt.failure for attempt in attempts)):
        assert failure is None or failure.cause != "task_error", failure.detail
    return session


async def rewards(example: Example[Any], rows: Sequence[Row], style: Style) -> list[float]:
    """The rewards of one player on all rows. Raises AssertionError if a session failed."""
    sessions = (played(example, row, example.player(style, row), refine=False) for row in rows)
    return [_reward(session) for session in await asyncio.gather(*sessions)]


def check_the_oracle_gets_full_marks(example: Example[Any], row: Row) -> None:
    """The gold answer gets (nearly) the best reward and a wrong one gets less."""
    headline = example.task.headline
    best, worst = (asyncio.run(rewards(example, [row], style))[0] for style in ("oracle", "contrarian"))
    assert best >= headline.low + example.full_marks * (headline.high - headline.low) - 1e-9, (best, headline)
    assert best > worst, (best, worst)


def check_silence_is_worth_nothing(example: Example[Any], row: Row) -> None:
    """An output without content gets the worst reward or no verdict, never anything in between."""
    for text in SILENCE:
        verdict = asyncio.run(played(example, row, always(text))).draft.verdict
        assert verdict is None or verdict.reward == example.task.headline.worst, (text, verdict)


def check_draft_and_refined_are_judged_alike(example: Example[Any], row: Row) -> None:
    """Equal episodes get equal verdicts with and without feedback: a reward in the range, finite metrics."""
    headline = example.task.headline
    for style in ("oracle", "contrarian", "random"):
        session = asyncio.run(played(example, row, _steady(example, row, style), _critical(LESSON)))
        assert session.refined is not None, session.feedback_failure
        draft, refined = session.draft.verdict, session.refined.verdict
        assert draft is not None and refined is not None, (session.draft.failure, session.refined.failure)
        assert (refined.reward, refined.metrics) == (draft.reward, draft.metrics), style
        assert headline.low <= draft.reward <= headline.high, (style, draft)
        assert headline.name in draft.metrics and all(map(math.isfinite, draft.metrics.values())), draft


def check_feedback_reaches_the_policy_alone(example: Example[Any], row: Row) -> None:
    """Every seat of the refined episode sees the feedback at the end of one message, after the common beginning that
    sampler and trainer compute once. Its base context and all other models do not see it."""
    fake = FakeOpenAI(_critical(LESSON))
    session = asyncio.run(played(example, row, example.oracle(row), fake))
    assert session.refined is not None and session.feedback, session.feedback_failure
    for name, seat in session.refined.players.seats.items():
        messages, base = seat.heard[0]  # type: ignore[attr-defined]
        assert base is not None, f"{name}: a seat with feedback needs its base context"
        changed = [(with_, without) for with_, without in zip(messages, base, strict=True) if with_ != without]
        assert len(changed) == 1, f"{name}: the feedback belongs in one message, and {len(changed)} differ"
        (with_, without) = changed[0]
        assert session.feedback in with_["content"], f"{name} does not see its feedback"
        assert with_["content"].startswith(without["content"]), f"{name}: put the feedback last: {with_['content']!r}"
    others = [text(heard) for seat in session.draft.players.seats.values() for heard, _ in seat.heard]  # type: ignore[attr-defined]
    others += [request.text for request in fake.requests]
    assert LESSON not in "".join(others), "a draft, a partner or a judge sees the feedback"


def check_feedback_withholds_the_answer(example: Example[Any], row: Row) -> None:
    """Even if the critique contains all secrets, none of them enters the refined prompt."""
    secrets = [secret for secret in example.task.secrets(row) if secret.strip()]
    # Not joined by a stroke: "yes / no" names both answers, so it may stay.
    session = asyncio.run(played(example, row, example.contrarian(row), _critical("; ".join(secrets) or LESSON)))
    withheld = session.feedback_failure is not None and session.feedback_failure.cause == "leak"
    assert session.feedback or withheld, "there is no feedback, although not all of it was secret"
    feedback = session.feedback or ""
    assert not [secret for secret in secrets if re.search(rf"(?<!\w){re.escape(secret)}(?!\w)", feedback)], feedback


def check_the_prompt_hides_the_gold_answer(example: Example[Any], row: Row) -> None:
    """The prompt does not depend on the hidden fields."""
    task, other = example.task, example.row(row.index + 1)
    for field in example.hidden_in(row):
        changed = row.model_copy(update={field: getattr(other, field)})
        assert task.prompt(changed) == task.prompt(row), f"the prompt depends on the field {field}"


def check_form_does_not_matter(example: Example[Any], row: Row) -> None:
    """Upper-case tags, white space and thinking do not change the verdict."""
    for style in ("oracle", "contrarian"):
        player = example.player(style, row)
        other = example.player("contrarian" if style == "oracle" else "oracle", row)
        forms: tuple[Callable[[str, str], str], ...] = (
            lambda answer, thought: f"\n  {answer}\n\n",
            lambda answer, thought: _TAG.sub(lambda tag: tag.group().upper(), answer),
            lambda answer, thought: f"<think>It might be {thought}, or not.</think>\n{answer}",
        )
        plain = _reward(asyncio.run(played(example, row, player, refine=False)))
        for form in forms:
            dressed = _dressed(player, other, form)
            assert _reward(asyncio.run(played(example, row, dressed, refine=False))) == plain, dressed([])


def check_no_output_crashes_the_task(example: Example[Any], row: Row, texts: Sequence[str] = ODD) -> None:
    """Whatever the policy says, the session ends with a verdict or a typed failure, and no code of the task raises."""
    for said in (babble(random.Random(row.index), 3), *texts):
        asyncio.run(played(example, row, always(said)))


CHECKS: tuple[Check, ...] = (
    check_the_oracle_gets_full_marks,
    check_silence_is_worth_nothing,
    check_draft_and_refined_are_judged_alike,
    check_feedback_reaches_the_policy_alone,
    check_feedback_withholds_the_answer,
    check_the_prompt_hides_the_gold_answer,
    check_form_does_not_matter,
    check_no_output_crashes_the_task,
)


def text(messages: Sequence[Message]) -> str:
    """The contents of messages, as one text."""
    return "\n".join(message["content"] for message in messages)


def _reward(session: Session) -> float:
    assert session.draft.verdict is not None, session.draft.failure
    return session.draft.verdict.reward


def _steady(example: Example[Any], row: Row, style: Style) -> Player:
    """A player that plays draft and refined episode alike: it starts again at each first turn."""
    current: dict[str, Player] = {}

    def say(messages: Sequence[Message]) -> str:
        if not any(message["role"] == "assistant" for message in messages):
            current["player"] = example.player(style, row)
        return current["player"](messages)

    return say


def _critical(critique: str) -> Callable[[ChatRequest], Reply]:
    """The examples' endpoint, but with this critique in all answers, or as the reasoning if there is no critique."""

    def script(request: ChatRequest) -> Reply:
        reply = answer(request)
        if isinstance(reply, Json) and isinstance(reply.value, Mapping):
            field = next((field for field in ("critique", "reasoning") if field in reply.value), None)
            return Json({**reply.value, field: critique}) if field else reply
        return reply

    return script


def _dressed(player: Player, other: Player, form: Callable[[str, str], str]) -> Player:
    return lambda messages: form(player(messages), other(messages))
