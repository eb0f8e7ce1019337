"""What a row belongs to, by which evaluation breaks its numbers down.

Promise under test: the record tells it, in few values; where the record tells nothing, there is no group. (That it
holds no gold answer and survives JSON is in the contract that every task must pass.)
"""

import pytest

from soul import examples
from soul.rows.task_files import parse_row
from soul.tasks.sotopia_row import RELATIONSHIPS
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


def example_groups(task, **changes):
    return groups(task, {"index": 0, **examples.load(task).record(0), **changes})


def test_what_else_records_tell():
    test = {"subtask": "Hinting Task Test", "ability": "Belief: Location false beliefs Belief: Second-order beliefs"}
    assert example_groups("social_r1", **test) == {"test": "Hinting Task Test", "ability": "Belief"}
    assert example_groups("social_r1", subtask="", ability=None) == {}
    assert example_groups("coser", tag="ood") == {"books": "ood"}
    math = example_groups("sim_arena_math", topic="Counting & Probability, Level 5. Concepts: Chance")
    assert math == {"subject": "Counting & Probability", "level": "Level 5"}
    assert example_groups("sim_arena_math", topic="how to add fractions") == {}
    assert example_groups("humanual", dataset="humanual-news", category="sport") == {
        "dataset": "humanual-news",
        "category": "sport",
    }
    assert example_groups("humanual-news", dataset="humanual-news", category="") == {}
    assert example_groups("sotopia", source="normbank")["environment"] == "normbank"
    friends = example_groups("sotopia", relationship="3")
    assert friends["relationship"] == RELATIONSHIPS[3]
    assert "environment" not in example_groups("sotopia", source={"name": "x"})  # and no mistake either
    assert "relationship" not in example_groups("sotopia", relationship="They met at a wedding in May.")
    assert example_groups("lifechoices") == example_groups("humanllm") == {}
    assert example_groups("mistakes") == {"image": "none"}
    assert example_groups("mistakes", AnswerBText="![A graph of [x]](b.png)") == {"image": "described"}
