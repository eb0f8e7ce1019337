"""The demo's offline stand-in judge, over real HTTP with the project's own judge gateway."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator

import pytest
from pydantic import BaseModel

from recipe.demo import coach, stories
from soul.errors import JudgeFailure
from soul.judge import Contentless, Endpoint, Judge
from soul.leaks.redaction import redact
from soul.one_turn import parse_options
from soul.task_types import Episode, Verdict
from soul.tasks.hitom import HiToM, HiToMRow

TASK = HiToM()
ATTEMPTS = [*(f"It is so. <answer>{letter}</answer>" for letter in "ABCDZ"), "no idea", "<answer>B", ""]


@pytest.fixture(scope="module")
def base_url() -> Iterator[str]:
    with coach.server() as server:
        yield server.url


def connect(base_url: str) -> Judge:
    return Judge.connect(Endpoint(model="any", base_url=base_url, api_key_env=None, max_attempts=1))


def feedback(base_url: str, record: stories.Record, attempt: str) -> tuple[str, Verdict]:
    row = HiToMRow.model_validate(record)
    episode = Episode({"policy": [*TASK.prompt(row), {"role": "assistant", "content": attempt}]})

    async def ask() -> tuple[str, Verdict]:
        judge = connect(base_url)  # a client belongs to one event loop
        verdict = await TASK.judge(row, episode, judge)
        return await TASK.feedback(row, episode, verdict, judge) or "", verdict

    return asyncio.run(ask())


def test_connection_test(base_url: str) -> None:
    asyncio.run(connect(base_url).check())


def test_critique_names_no_place_and_no_letter(base_url: str) -> None:
    for record in stories.exercises(8, seed=70):
        row = HiToMRow.model_validate(record)
        for attempt in filter(str.strip, ATTEMPTS):
            text, _ = feedback(base_url, record, attempt)
            assert text
            assert not [option for option in parse_options(row.choices).values() if option in text]
            assert not re.search(r"\b[B-Z]\b", text)
            assert redact(text, TASK.secrets(row)) == (text, [])


def test_nobody_is_asked_about_an_attempt_that_says_nothing(base_url: str) -> None:
    with pytest.raises(Contentless):
        feedback(base_url, stories.exercises(1, seed=70)[0], " ")


def test_critique_fits_the_slip(base_url: str) -> None:
    for record in stories.exercises(12, seed=71):
        people = coach.asked_about(record["question"])
        right, verdict = feedback(base_url, record, stories.say(record, careful=True))
        assert verdict.reward == 1.0 and "Keep doing so" in right
        wrong, verdict = feedback(base_url, record, stories.say(record, careful=False))
        assert verdict.reward == 0.0 and "Keep doing so" not in wrong
        assert ("in truth" in wrong and people[0] in wrong) if people else "follow the thing" in wrong
        assert "form" in feedback(base_url, record, "I say B")[0]


def test_other_requests_are_refused(base_url: str) -> None:
    class Score(BaseModel):
        score: float

    with pytest.raises(JudgeFailure, match="only writes critiques"):
        asyncio.run(connect(base_url).ask(Score, "Score it.", {"attempt": "x"}))
    with pytest.raises(JudgeFailure, match="the task holds no"):
        asyncio.run(
            connect(base_url).ask(
                judge_schema(), "Critique it.", {"task": "2+2?", "correct_answer": "4", "attempt": "5"}
            )
        )


def judge_schema() -> type[BaseModel]:
    class Critique(BaseModel):
        critique: str

    return Critique


def test_many_sessions_at_once(base_url: str) -> None:
    judge = connect(base_url)
    record = stories.exercises(1, seed=72)[0]
    row = HiToMRow.model_validate(record)
    episode = Episode({"policy": [*TASK.prompt(row), {"role": "assistant", "content": "<answer>A</answer>"}]})

    async def ask() -> list[str | None]:
        return list(await asyncio.gather(*(TASK.feedback(row, episode, Verdict(0.0), judge) for _ in range(200))))

    assert len(set(asyncio.run(ask()))) == 1
    assert judge.usage.calls == 200 and not judge.usage.failures


def test_who_is_asked_about() -> None:
    assert coach.asked_about("Where is the tomato really?") == []
    assert coach.asked_about("Where does Jacob really think the tomato is?") == ["Jacob"]
    assert coach.asked_about("Where does Emily think Avery thinks Lily thinks the onion is?") == [
        "Emily",
        "Avery",
        "Lily",
    ]
