"""Answers that can be counted (self-consistency).

Promise under test: a vote is the answer without its wording; other answers are other votes, and no answer is none.
"""

import pytest

from soul import tasks
from soul.one_turn import Voting
from tests.soul.samples import SAMPLES, episode_of, load, tagged

VOTING = {
    "hitom",
    "fantom",
    "paratomi",
    "lifechoices",
    "mistakes",
    "twinvoice",
    "social_r1",
    "behavior_chain",
    "socsci210",
}


def vote(item, text):
    return item.task.vote(item.row, episode_of(item, text))


@pytest.mark.parametrize("name", SAMPLES)
def test_wording_is_no_part_of_a_vote_and_another_answer_is_another_vote(name):
    sample, item = load(name)
    (right,) = {vote(item, tagged(text)) for text in sample.right}
    assert right is not None
    assert all(vote(item, tagged(text)) != right for text in sample.wrong)
    assert vote(item, f"<think>{tagged(sample.wrong[0])}</think>{tagged(sample.right[0])}") == right
    assert vote(item, sample.right[0]) is None  # not in the tag that the prompt asks for


def test_two_answers_at_once_are_none():
    assert vote(load("paratomi")[1], tagged("treasure_chest or crate")) is None
    assert vote(load("fantom_binary")[1], tagged("yes and no")) is None
    assert vote(load("hitom")[1], tagged("A, B")) is None
    assert vote(load("hitom")[1], tagged("Z")) is None  # no option of the question


def test_tasks_with_a_definite_answer_count_votes_and_talks_do_not():
    voting = {name for name in tasks.names() if isinstance(tasks.load(name), Voting)}
    assert voting == VOTING | {"socsci210"} | {name for name in tasks.names() if name.startswith("alignx")}
