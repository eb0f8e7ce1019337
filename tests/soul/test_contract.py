"""Every task keeps its word: full marks for the right answer, nothing for silence, no leak, no crash.

The checks are those that ship (`soul.examples.contract`); rows are the invented ones of `soul.examples`.
"""

import asyncio
import statistics

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from soul import examples, tasks
from soul.examples.contract import CHECKS, check_no_output_crashes_the_task, played, rewards
from tests.soul.samples import TASKS

each_task = pytest.mark.parametrize("name", TASKS)
ROWS = 40


def test_every_task_has_an_example():
    assert set(examples.names()) == set(tasks.names())


@each_task
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__.removeprefix("check_"))
def test_the_contract(name, check):
    example = examples.load(name)
    for number in range(2):
        check(example, example.row(number))


@each_task
def test_rows_differ_and_who_plays_better_scores_higher(name):
    example = examples.load(name)
    rows = [example.row(number) for number in range(ROWS)]
    assert len({str(example.task.prompt(row)) for row in rows}) == ROWS
    count = 6 if example.task.policy_turns > 1 else 16  # a dialogue takes long, and its rewards hardly spread
    oracle, chance, contrarian = (
        statistics.fmean(asyncio.run(rewards(example, rows[:count], style)))
        for style in ("oracle", "random", "contrarian")
    )
    assert oracle > chance > contrarian, (oracle, chance, contrarian)


@each_task
def test_a_metric_with_a_direction_is_one_that_verdicts_have(name):
    example = examples.load(name)
    reported = set()
    for number in range(4):
        row = example.row(number)
        session = asyncio.run(played(example, row, example.oracle(row), refine=False))
        reported |= set(session.draft.verdict.metrics)
    assert set(example.task.better) <= reported - {example.task.headline.name}


TAGS = ["<answer>", "</answer>", "<response>", "</response>", "<think>", "</think>", "\n", ",", "[", "]", "(", ")", "{"]
SAID = ["A", "b", "(C)", "yes", "No.", "5", "-3", "9" * 400, "D,A,B,C,E", "None", "nan", '"speak"', "[END]", "\u200b"]
outputs = st.lists(st.one_of(st.sampled_from(TAGS), st.sampled_from(SAID), st.text(max_size=8)), max_size=20)


@settings(max_examples=10, deadline=None)
@given(text=outputs.map("".join), name=st.sampled_from(TASKS), number=st.integers(0, ROWS))
def test_no_output_crashes_a_task(text, name, number):
    example = examples.load(name)
    check_no_output_crashes_the_task(example, example.row(number), [text])
