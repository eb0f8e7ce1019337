"""The demo's offline stand-in judge, over real HTTP with the project's own judge gateway."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator

import pytest

from recipe.demo import coach, stories
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
