"""What a row belongs to, by which evaluation breaks its numbers down.

Promise under test: the record tells it, in few values; where the record tells nothing, there is no group. (That it
holds no gold answer and survives JSON is in the contract that every task must pass.)
"""

import pytest

from soul import examples
from soul.rows.task_files import parse_row
from tests.soul.samples import FANTOM_CHOICE, FANTOM_FACT, FANTOM_LIST, HITOM, PARATOMI


def groups(task, record):
    item = parse_row(task, record)
    return dict(item.task.groups(item.row))


SAID = {
    "hitom": ("hitom", HITOM, {"order": "0"}),
    "hitom in full": ("hitom", {**HITOM, "question_order": 4, "deception": True, "story_length": 3}, None),
    "hitom of unknown order": ("hitom", {k: v for k, v in HITOM.items() if k != "question_order"}, {}),
    "fantom, belief": ("fantom", FANTOM_CHOICE, {"question": "belief multiple-choice", "access": "inaccessible"}),
    "fantom, list": ("fantom", FANTOM_LIST, {"question": "answerability list"}),
    "fantom, fact": (
        "fantom",
        {**FANTOM_FACT, "missed_info_accessibility": "accessible", "tom_type": "second-order:cyclic"},
        {"question": "fact", "access": "accessible", "order": "second-order:cyclic"},
    ),
    "paratomi": ("paratomi", PARATOMI, {"question": "first_order_no_tom"}),
    "paratomi, agent named": (
        "paratomi",
        {**PARATOMI, "qType": "second_order_1_tom"},
        {"question": "second_order_tom"},
    ),
}


@pytest.mark.parametrize("name", SAID)
def test_a_record_tells_its_groups(name):
    task, record, want = SAID[name]
    want = {"order": "4", "chapters": "3", "deception": "yes"} if want is None else want
    assert groups(task, record) == want


TOPIC = "Counting & Probability, Level 5. Concepts: Chance"


@pytest.mark.parametrize(
    "task, changes, expected",
    [
        ("social_r1", {"subtask": "Hinting", "ability": "Belief: x"}, {"test": "Hinting", "ability": "Belief"}),
        ("social_r1", {"subtask": "", "ability": None}, {}),
        ("coser", {"tag": "ood"}, {"books": "ood"}),
        ("sim_arena_math", {"topic": TOPIC}, {"subject": "Counting & Probability", "level": "Level 5"}),
        ("sim_arena_math", {"topic": "how to add fractions"}, {}),
        ("humanual", {"dataset": "humanual-news", "category": "x"}, {"dataset": "humanual-news", "category": "x"}),
        ("humanual-news", {"dataset": "humanual-news", "category": ""}, {}),
        ("sotopia", {"source": {"name": "x"}, "relationship": "3"}, {"relationship": "friends", "position": "agent1"}),
        ("sotopia", {"source": "x", "relationship": "Met in May."}, {"environment": "x", "position": "agent1"}),
        ("mistakes", {"AnswerBText": "![A graph of [x]](b.png)"}, {"image": "described"}),
        ("lifechoices", {}, {}),
    ],
)
def test_an_examples_record_tells_its_groups(task, changes, expected):
    assert groups(task, {"index": 0, **examples.load(task).record(0), **changes}) == expected
