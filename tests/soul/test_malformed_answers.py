"""Malformed answers to every task: each is scored by the task's rule, counted in `answered`, and what it lacks of
the form is named in the feedback. None is called empty."""

import asyncio
import re

import pytest

from soul import examples
from soul.answers.thinking import without_thinking
from soul.examples.endpoint import answer
from soul.judge.call.untrusted import contentless
from soul.leaks.redaction import redact
from soul.session import SAID_NOTHING, RefineSettings, run_session
from soul.testing import fake_gateway, scripted_players
from tests.soul.samples import TASKS

TAGS = re.compile(r"</?(?:answer|response)>")
LABELS = re.compile(r"^(?:Query|Response|Message):\s*", re.MULTILINE)


def bare(text):
    """The words of an answer without its form."""
    said = re.search(r'"argument": "(.*?)"\}', text)
    return LABELS.sub("", TAGS.sub("", said[1] if said else text)).strip()


# A well-formed answer -> a malformed one, as small models write them.
MALFORMED = [
    bare,
    lambda text: re.sub(r"</\w+>", "", text),
    lambda text: re.sub(r"<\w+>", "", text),
    lambda text: re.sub(r"<\w+>.*?</\w+>", "I wrote <answer></answer>", text, flags=re.DOTALL),
    lambda text: re.sub(r"<\w+>.*?</\w+>", "So <answer>LETTER</answer>", text, flags=re.DOTALL),
    lambda text: re.sub(r"<\w+>.*?</\w+>", "So <answer>your answer here</answer>", text, flags=re.DOTALL),
    lambda text: f"<think>{text}</think>I have thought about all of this.",
    lambda text: f"{bare(text)}\n<answer>",
    lambda text: f"</answer>{bare(text)}",
    lambda text: f"The answer is {bare(text)}, I think.",
    lambda text: f"The correct answer is: {bare(text)}. Because it fits best.",
    lambda text: f"\\boxed{{{bare(text)}}}",
    lambda text: f'{{"answer": "{bare(text)}"}}',
    lambda text: f'{{"action_type": "speak", "argument": "{bare(text)}',
    lambda text: f"{{'action_type': 'speak', 'argument': '{bare(text)}'}}",
    lambda text: f"Assistant: {bare(text)}",
    lambda text: f"{bare(text)} " * 12,
    lambda text: f"{bare(text)} <|endconversation>",
    lambda text: f"[I will say this now. {bare(text)}",
]
ROWS = {"fantom": 4, "userllm": 4, "socsci210": 3}  # their rows ask for different forms


async def sessions_of(example, row, said):
    gateway = fake_gateway(answer, max_attempts=1, max_reasks=0)
    settings = RefineSettings(max_feedback_chars=100_000)
    every = (run_session(example.task, row, scripted_players(text), gateway, settings) for text in said)
    return await asyncio.gather(*every)


@pytest.mark.parametrize("name", TASKS)
def test_what_a_malformed_answer_lacks_is_named_and_counted(name):
    example = examples.load(name)
    task, lacking = example.task, 0
    for number in range(ROWS.get(name, 1)):
        row = example.row(number)
        prompt = "\n".join(message["content"] for message in task.prompt(row))
        right = example.oracle(row)(task.prompt(row))
        texts = [malform(right) for malform in MALFORMED]
        for said, session in zip(texts, asyncio.run(sessions_of(example, row, texts)), strict=True):
            draft, lacks = session.draft, task.missing_form(row, session.draft.episode)
            assert draft.failure is session.feedback_failure is None, (said, draft.failure, session.feedback_failure)
            answered = draft.verdict.metrics["answered"]
            assert (answered < 1) == (lacks is not None), (said, answered, lacks)
            assert session.feedback.startswith(lacks or "") and SAID_NOTHING not in session.feedback, said
            if not contentless(without_thinking(said), 3) and name != "coser":  # a cast may think without a word
                assert not draft.contentless, said
            guarded = redact(lacks or "", task.secrets(row), task.choices(row), prompt)
            assert guarded == (lacks or "", []), "a critic who says the same is withheld"
            lacking += answered < 1
    forms = {"userllm": 2, "coser": 1, "mirrorbench": 0}
    assert lacking >= forms.get(name, 10), lacking
