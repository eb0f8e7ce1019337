"""The contract that every task must fulfil, as checks for your tests.

    from soul.examples.contract import CHECKS

    @pytest.mark.parametrize("check", CHECKS)
    def test_contract(check):
        example = MyExample()
        check(example, example.row(0))

Each check plays the row through the driver with an example's players against an in-process endpoint, and raises
AssertionError if the task violates the contract.
"""

from __future__ import annotations

import asyncio
import json
import math
import random
import re
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from soul.examples import Example
from soul.examples.endpoint import answer
from soul.examples.example import Player, Style, always, babble
from soul.message import Message
from soul.one_turn import LetterTask, OneTurnTask, Voting
from soul.session import RefineSettings, Session, run_session
from soul.task import Task
from soul.task_types import Episode, Row
from soul.testing.doubles import fake_gateway, scripted_players
from soul.testing.replies import ChatRequest, Json, Reply, Script
from soul.testing.server import FakeOpenAI

LESSON = "Say less of this, and {more} of that: 100% \\n <b>."
SILENCE = ("", " \n\t", "Thought process:", ":", "<think>I would rather not.</think>", "<answer></answer>")
_NOTHING = re.compile(r"\b(None|null|nan|NaN|undefined)\b")
_TAG = re.compile(r"</?\w+>")
# An example of the form: "<answer>LETTER</answer>", a JSON object, a turn that begins with a thought in brackets.
_SHOWN = re.compile(r"<(\w+)>[^<>\n]*</\1>|\{\"[^{}\n]*\}|^\[[^\[\]\n]+\][^\n]+$", re.MULTILINE)
CHEATED_ROWS = 6
Check = Callable[[Example[Any], Any], None]


async def played(
    example: Example[Any],
    row: Row,
    player: Player,
    script: Script | FakeOpenAI = answer,
    *,
    refine: bool = True,
    step: int = 0,
) -> Session:
    """Run one session of the row in process."""
    gateway = fake_gateway(script, max_attempts=1, max_reasks=0)
    settings = RefineSettings(max_feedback_chars=100_000)
    return await run_session(example.task, row, scripted_players(player), gateway, settings, step=step, refine=refine)


async def rewards(example: Example[Any], rows: Sequence[Row], style: Style, seed: int = 0) -> list[float]:
    """The rewards of one player on all rows.

    Raises:
        AssertionError: a session failed.
    """
    sessions = (played(example, row, example.player(style, row, seed), refine=False) for row in rows)
    return [_reward(session) for session in await asyncio.gather(*sessions)]


def check_the_oracle_gets_full_marks(example: Example[Any], row: Row) -> None:
    """The gold answer gets (nearly) the best reward and a wrong one gets less, both within the documented range."""
    headline = example.task.headline
    best, worst = (asyncio.run(rewards(example, [row], style))[0] for style in ("oracle", "contrarian"))
    span = headline.high - headline.low
    assert best >= headline.low + example.full_marks * span - 1e-9, (best, headline)
    assert best > worst, (best, worst)


def check_silence_is_worth_nothing(example: Example[Any], row: Row) -> None:
    """An output without content gets the worst reward or no verdict, never anything in between."""
    for text in SILENCE:
        session = _sound(asyncio.run(played(example, row, lambda messages, text=text: text)))  # type: ignore[misc]
        verdict = session.draft.verdict
        assert verdict is None or verdict.reward == example.task.headline.worst, (text, verdict)


def check_draft_and_refined_are_judged_alike(example: Example[Any], row: Row) -> None:
    """Equal episodes get equal verdicts, with and without feedback. The reward is within the headline's range, and
    finite metrics include the headline."""
    headline = example.task.headline
    for style in ("oracle", "contrarian", "random"):
        session = _sound(asyncio.run(played(example, row, _steady(example, row, style), _critical(LESSON))))
        assert session.refined is not None, session.feedback_failure
        draft, refined = session.draft.verdict, session.refined.verdict
        assert draft is not None and refined is not None, (session.draft.failure, session.refined.failure)
        assert (refined.reward, refined.metrics) == (draft.reward, draft.metrics), style
        assert headline.low <= draft.reward <= headline.high, (style, draft)
        assert all(math.isfinite(value) for value in draft.metrics.values()), draft
        assert headline.name in draft.metrics, (headline.name, draft)


def check_feedback_reaches_the_policy_alone(example: Example[Any], row: Row) -> None:
    """The seats of the refined episode see the feedback, at the end of one message: sampler and trainer compute the
    common beginning of both prompts once. Their base contexts and all other models do not see it."""
    fake = FakeOpenAI(_critical(LESSON))
    session = _sound(asyncio.run(played(example, row, example.oracle(row), fake)))
    assert session.refined is not None and session.feedback
    has_critic = any("response_format" in request.body for request in fake.requests)
    lesson = LESSON if has_critic else session.feedback  # a verdict by rule may have a critique by rule
    assert lesson in session.feedback
    for name, seat in session.refined.players.seats.items():
        for messages, base in seat.heard:  # type: ignore[attr-defined]
            assert session.feedback in _text(messages), "the policy does not see its feedback"
            assert base is not None, "a seat with feedback needs its base context"
            assert lesson not in _text(base), "the base context, which is trained, contains the feedback"
        messages, base = seat.heard[0]  # type: ignore[attr-defined]
        pairs = [(with_, without) for with_, without in zip(messages, base, strict=True) if with_ != without]
        assert len(pairs) == 1, f"{name}: the feedback belongs in one message, and {len(pairs)} differ"
        with_, without = pairs[0]
        assert with_["role"] == without["role"] and with_["content"].startswith(without["content"]), (
            f"{name}: put the feedback after everything else in its message: {with_['content']!r}"
        )
    for seat in session.draft.players.seats.values():
        assert all(lesson not in _text(messages) for messages, _ in seat.heard)  # type: ignore[attr-defined]
    assert all(lesson not in request.text for request in fake.requests), "a partner or a judge sees the feedback"


def check_feedback_withholds_the_answer(example: Example[Any], row: Row) -> None:
    """Even if the critique contains all secrets, none of them enters the refined prompt."""
    secrets = [secret for secret in example.task.secrets(row) if secret.strip()]
    # Not joined by a stroke: "yes / no" names both answers, so it may stay.
    critic = _critical("; ".join(secrets) or LESSON)
    session = _sound(asyncio.run(played(example, row, example.contrarian(row), critic)))
    withheld = session.feedback_failure is not None and session.feedback_failure.cause == "leak"
    assert session.feedback or withheld, "there is no feedback, although not all of it was secret"
    feedback = session.feedback or ""
    assert not [secret for secret in secrets if re.search(rf"(?<!\w){re.escape(secret)}(?!\w)", feedback)], feedback


def check_the_prompt_hides_what_it_must(example: Example[Any], row: Row) -> None:
    """The prompt contains no None, and does not depend on the gold answer."""
    task, other = example.task, example.row(row.index + 1)
    fields = json.dumps(row.model_dump(mode="json"), ensure_ascii=False)
    for feedback in (None, LESSON):
        text = _text(task.prompt(row, feedback))
        assert {*_NOTHING.findall(text)} <= {*_NOTHING.findall(re.sub(r":\s*null", "", fields))}, text
        for field in example.hidden_in(row):
            changed = row.model_copy(update={field: getattr(other, field)})
            assert _text(task.prompt(changed, feedback)) == text, f"the prompt depends on the field {field}"


def check_the_answer_that_is_read_is_the_one_that_is_scored(example: Example[Any], row: Row) -> None:
    """Silence gives no answer. If a task reads an answer, the one in a report equals the target exactly if it is fully
    right; if answers can be counted (`Voting`), each has a vote, and equal votes earn the same reward."""
    task, target = example.task, example.task.target(row)
    assert target is None or (target == target.strip() != ""), target
    reads = not isinstance(task, OneTurnTask) or isinstance(task, Voting) or type(task).given is not OneTurnTask.given
    earned: dict[str, float] = {}
    players = [example.oracle(row), example.contrarian(row)]
    players += [example.player("random", row, seed) for seed in range(4)]
    for player in (*players, *(_dressed(p, p, lambda answer, _: f"<think>Hm.</think>\n {answer}\n") for p in players)):
        draft = _sound(asyncio.run(played(example, row, player, refine=False))).draft
        assert draft.episode is not None and draft.verdict is not None, draft.failure
        given, reward = task.given(row, draft.episode), draft.verdict.reward
        assert given is None or (target is not None and given == given.strip() != ""), given
        if target is not None and reads:
            right = _names(task, target, given)
            assert right == (reward >= task.headline.high), f"given {given!r}, expected {target!r}, reward {reward}"
        if isinstance(task, Voting):
            vote = task.vote(row, draft.episode)
            assert vote is not None and earned.setdefault(vote, reward) == reward, (vote, draft.episode.answer)
    for text in SILENCE:
        silent = Episode({"policy": [{"role": "assistant", "content": text}]})
        assert target is None or task.given(row, silent) is None, text
        assert not isinstance(task, Voting) or task.vote(row, silent) is None, text


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
        plain = _sound(asyncio.run(played(example, row, player, refine=False))).draft.verdict
        for form in forms:
            dressed = _dressed(player, other, form)
            verdict = _sound(asyncio.run(played(example, row, dressed, refine=False))).draft.verdict
            assert verdict is not None and plain is not None and verdict.reward == plain.reward, dressed([])


def check_no_output_crashes_the_task(example: Example[Any], row: Row, texts: Sequence[str] = ()) -> None:
    """Whatever the policy says, the session ends with a verdict or a typed failure, and no code of the task raises."""
    rng = random.Random(row.index)
    for text in texts or (
        babble(rng, 3),
        "{}",
        "[",
        '{"action_type": 3}',
        "<answer>" * 50,
        "\ud83d",
        "A" * 5000,
        "%s {x}",
    ):
        session = asyncio.run(played(example, row, lambda messages, text=text: text))  # type: ignore[misc]
        _sound(session)


def check_no_cheat_beats_a_constant_answer(example: Example[Any]) -> None:
    """Who repeats the prompt, repeats itself in a loop, or copies the example of the form earns no more than some
    constant answer: the same words in every turn of every row."""
    rows = [example.row(number) for number in range(CHEATED_ROWS)]
    styles: tuple[Style, ...] = ("random", "oracle", "contrarian")
    constants = [example.player(style, row)(example.task.prompt(row)) for row in rows for style in styles]
    cheats: dict[str, Callable[[Row], Player]] = {
        "repeats the prompt": lambda row: always(_text(example.task.prompt(row))),
        "repeats itself in a loop": lambda row: always("\n".join([constants[0]] * 30)),
        "copies the example": lambda row: always(_example_in(_text(example.task.prompt(row)))),
    }
    earned = {name: _mean_reward(example, rows, player) for name, player in cheats.items()}
    name = max(earned, key=lambda name: earned[name])
    fair = (_mean_reward(example, rows, lambda _, text=text: always(text)) for text in dict.fromkeys(constants))  # type: ignore[misc]
    assert any(reward >= earned[name] - 1e-9 for reward in fair), f"who {name} earns {earned[name]:.3f}, more than fair"


def _mean_reward(example: Example[Any], rows: Sequence[Row], player: Callable[[Row], Player]) -> float:
    async def every() -> list[Session]:
        return await asyncio.gather(*(played(example, row, player(row), refine=False) for row in rows))

    return statistics.fmean(map(_reward, asyncio.run(every())))


def _example_in(prompt: str) -> str:
    """The last thing in a prompt that shows the form of an answer; its last paragraph if nothing does."""
    return next((match[0] for match in reversed(list(_SHOWN.finditer(prompt)))), prompt.rpartition("\n\n")[2])


CHECKS: tuple[Check, ...] = (
    check_the_oracle_gets_full_marks,
    check_silence_is_worth_nothing,
    check_draft_and_refined_are_judged_alike,
    check_feedback_reaches_the_policy_alone,
    check_feedback_withholds_the_answer,
    check_the_prompt_hides_what_it_must,
    check_the_answer_that_is_read_is_the_one_that_is_scored,
    check_form_does_not_matter,
    check_no_output_crashes_the_task,
)


def _names(task: Task[Any], target: str, given: str | None) -> bool:
    """Whether the given answer is the target, or one of the options in the target ("A. 7 or C. 7.0")."""
    return given == target or (isinstance(task, LetterTask) and f" or {given} or " in f" or {target} or ")


def _sound(session: Session) -> Session:
    """The session, after a check that no code of the task raised an exception."""
    attempts = [attempt for attempt in (session.draft, session.refined) if attempt is not None]
    for failure in (session.feedback_failure, *(attempt.failure for attempt in attempts)):
        assert failure is None or failure.cause != "task_error", failure.detail
    return session


def _reward(session: Session) -> float:
    assert session.draft.verdict is not None, session.draft.failure
    return session.draft.verdict.reward


def _text(messages: Sequence[Message]) -> str:
    return "\n".join(message["content"] for message in messages)


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
