"""Which reader is in use is an option of every task with a definite answer, and both readings are metrics."""

import asyncio
import json
from dataclasses import dataclass
from typing import Any

import pytest

from soul import tasks
from soul.answers.extraction import tagged_letter
from soul.judge import ChatModel
from soul.one_turn import AnswerTask
from soul.policy import OpenAISeat
from soul.rows.task_files import parse_row
from soul.testing import FakeOpenAI, Text
from soul.testing.replies import Answer, ChatRequest, Reply
from tests.soul.samples import SAMPLES as TOM
from tests.soul.samples import verdict_of
from tests.soul.tasks.one_turn_samples import SAMPLES as OTHERS

RECORDS = {name: (sample.task, sample.record, sample.right[0]) for name, sample in TOM.items()} | {
    name: (sample.task.name, sample.record, sample.right[0]) for name, sample in OTHERS.items()
}
# Words are found in their dress by both readers.
SAME = {"paratomi", "fantom_list", "fantom_binary", "fantom_fact"}


@pytest.fixture
def unconfigured():
    yield
    tasks.configure({})


@pytest.mark.parametrize("name", RECORDS)
def test_the_option_chooses_the_reader_and_both_readings_are_metrics(name, unconfigured):
    task, record, right = RECORDS[name]
    dressed = f"<answer>**{right}**</answer>"

    def verdict():
        return verdict_of(parse_row(task, record), dressed)

    strictly = float(name in SAME)
    metrics = verdict().metrics
    assert (verdict().reward, metrics["answered"], metrics["answered_strict"]) == (1.0, 1.0, strictly)
    assert metrics.get("accuracy_strict", strictly) == strictly
    tasks.configure({task: {"strict_answers": True}})
    metrics = verdict().metrics
    assert (verdict().reward, metrics["answered"], metrics["answered_strict"]) == (strictly, strictly, strictly)


def test_every_task_with_a_definite_answer_has_it_and_no_other():
    have = {name for name in tasks.names() if isinstance(tasks.load(name), AnswerTask)}
    assert have == {task for task, _, _ in RECORDS.values()}


@dataclass(frozen=True)
class Message(Reply):
    """A completion whose message has these fields."""

    fields: dict[str, Any]

    def answer(self, request: ChatRequest) -> Answer:
        plain = Text("x").answer(request)
        body = json.loads(plain.body)
        body["choices"][0]["message"] = {"role": "assistant", **self.fields}
        return Answer(body=json.dumps(body).encode())


THOUGHT = "It must be <answer>A</answer>"


@pytest.mark.parametrize(
    "fields, letter",
    [
        ({"content": None, "reasoning_content": THOUGHT}, None),  # vLLM, SGLang, DeepSeek
        ({"content": "", "reasoning": THOUGHT}, None),  # OpenRouter, newer vLLM
        ({"content": "", "reasoning_details": [{"type": "reasoning.text", "text": THOUGHT}]}, None),
        ({"content": "<answer>B</answer>", "reasoning_content": THOUGHT}, "B"),
        ({"content": "<answer>B</answer>", "reasoning": THOUGHT}, "B"),
        ({"content": [{"type": "thinking", "thinking": [{"type": "text", "text": THOUGHT}]}]}, None),  # Mistral
        (
            {
                "content": [
                    {"type": "thinking", "thinking": [{"type": "text", "text": THOUGHT}]},
                    {"type": "text", "text": "<answer>B</answer>"},
                ]
            },
            "B",
        ),
    ],
)
def test_a_reasoning_field_of_an_api_is_no_answer(fields, letter):
    async def say(fake):
        model = ChatModel.connect(fake.endpoint())
        try:
            return await OpenAISeat(model).say([{"role": "user", "content": "A or B?"}])
        finally:
            await model.close()

    with FakeOpenAI(Message(fields)) as fake:
        said = asyncio.run(say(fake))
    assert tagged_letter(said) == letter and THOUGHT not in said
