"""The tasks with a definite answer: what scores, what does not, and what the policy gets to see.

Every kind of question runs through the same tests (`samples.SAMPLES`), so a new task of this family is covered by
adding a sample. The real records at the end check that the row schemas fit the public sources.
"""

import asyncio
import re

import pytest

from soul.one_turn import parse_options
from soul.rows.task_files import parse_row
from soul.task_types import Scored
from tests.soul.samples import (
    SAMPLES,
    episode_of,
    load,
    real_fantom,
    real_hitom,
    real_paratomi,
    tagged,
    verdict_of,
)

each_kind = pytest.mark.parametrize("name", SAMPLES)


# --- the critique


@each_kind
def test_summarize_averages_what_each_verdict_reports(name):
    sample, item = load(name)
    answers = [tagged(sample.right[0]), tagged(sample.wrong[0])]
    scored = [Scored(episode_of(item, answer), verdict_of(item, answer)) for answer in answers]
    summary = item.task.summarize(scored)
    assert summary["accuracy"] == summary["reward"] == 0.5
    assert summary["answered"] <= 1.0
    assert item.task.summarize([]) == {}


# --- real records


def scores(item, answers):
    """The rewards of these answers, without a judge."""

    async def all_of_them():
        return [(await item.task.judge(item.row, episode_of(item, tagged(a)), None)).reward for a in answers]

    return asyncio.run(all_of_them())


def test_real_hitom():
    records = real_hitom()
    orders = set()
    for number, record in enumerate(records):
        item = parse_row("hitom", record, "real", number)
        options = parse_options(record["choices"])
        assert list(options) == [chr(ord("A") + i) for i in range(len(options))]
        rewards = dict(zip(options, scores(item, list(options)), strict=True))
        assert [options[letter] for letter, reward in rewards.items() if reward == 1.0] == [record["answer"]]
        assert sum(rewards.values()) == 1.0
        orders.add(item.row.question_order)
        prompt = item.task.prompt(item.row)[0]["content"]
        assert record["story"].strip() in prompt and record["question"] in prompt and "None" not in prompt
    assert len(records) > 300 and orders == {0, 1, 2, 3, 4}


def test_real_paratomi():
    records = real_paratomi()
    for number, record in enumerate(records):
        item = parse_row("paratomi", record, "real", number)
        gold = record["correct_answer"]
        others = [place for place in item.row.cands if place != gold]
        right = scores(item, [gold, gold.upper(), gold.replace("_", " "), f"the {gold}."])
        assert right == [1.0] * 4, record
        assert not any(scores(item, [*others, *(f"{gold} or {other}" for other in others), "nowhere"])), record
        assert all(sentence in item.task.prompt(item.row)[0]["content"] for sentence in item.row.story)
    assert len(records) > 900
    assert any(record.get("cands") for record in records) and any("cands" not in record for record in records)


def test_real_fantom():
    records = real_fantom()
    for number, record in enumerate(records):
        item = parse_row("fantom", record, "real", number)
        letters = ["A", "B"][: len(record["answer_choices"])]
        expected = [float(position == record["correct_answer"]) for position in range(len(letters))]
        assert scores(item, letters) == expected
        prompt = item.task.prompt(item.row)[0]["content"]
        assert all(
            f"{letter}. {text}" in prompt for letter, text in zip(letters, record["answer_choices"], strict=True)
        )
        assert not re.search(r"\bNone\b", prompt) or re.search(r"\bNone\b", record["context"] + record["question"])
    assert len(records) > 300
    assert {record["correct_answer"] for record in records} == {0, 1}
