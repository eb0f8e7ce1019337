"""What a row belongs to, by which evaluation breaks its numbers down.

Promise under test: the record tells it, in few values; where the record tells nothing, there is no group. (That it
holds no gold answer and survives JSON is in the contract that every task must pass.)
"""

import json
from collections import Counter

import pytest

from data import alignx, coser, fantom, hitom, mirrorbench, paratomi, sim_arena, social_r1, sotopia, twinvoice
from soul import examples
from soul.rows.task_files import parse_row
from soul.tasks.sotopia_row import RELATIONSHIPS
from tests.soul.samples import DATA, FANTOM_CHOICE, FANTOM_FACT, FANTOM_LIST, HITOM, PARATOMI

MOST_VALUES = 25


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


def test_the_scenes_of_a_chain_are_counted_where_the_record_lists_them():
    raw = json.loads(examples.load("behavior_chain").record(0)["raw"])
    link = raw["prior_chain"][0]

    def earlier(**changes):
        return groups("behavior_chain", {"index": 0, "raw": json.dumps({**raw, **changes})})

    assert earlier() == {"earlier scenes": "2"}
    assert earlier(prior_chain=json.dumps([link] * 11)) == {"earlier scenes": "11"}
    assert earlier(prior_chain=[]) == earlier(prior_chain=None) == {"earlier scenes": "0"}
    assert earlier(prior_chain=None, prior_chain_text="One scene. Perhaps another one.") == {}


REAL = {
    "hitom": (
        lambda p: hitom.convert(p("hitom", "Hi-ToM_data.json")).records,
        {"order": 5, "chapters": 3, "deception": 2},
    ),
    "fantom": (
        lambda p: fantom.convert(sorted(p("fantom").glob("*.csv"))),
        {"question": 1, "access": 2, "order": 2},
    ),
    "paratomi": (lambda p: paratomi.convert(p("paratomi", "paraphrased_tomi_test.txt")), {"question": 6}),
    "social_r1": (
        lambda p: social_r1.convert(sorted(p("social_r1").glob("*.jsonl"))),
        {"test": 20, "ability": 6},
    ),
    "twinvoice": (
        lambda p: twinvoice.convert(sorted(p("twinvoice").glob("*.jsonl"))).records,
        {"dimension": 1},
    ),
    "alignx_pair": (
        lambda p: alignx.convert(sorted(p("alignx").glob("*.json")), "alignx_pair").records,
        {"source": 2, "user known by": 1},
    ),
    "mirrorbench": (lambda p: mirrorbench.convert(sorted(p("mirrorbench").glob("*.jsonl"))), {"dataset": 4}),
    "sotopia": (
        lambda p: sotopia.convert([p("sotopia")], hard_only=True).records,
        {"relationship": 4, "environment": 5, "position": 2},
    ),
    "coser": (lambda p: coser.convert([p("coser", "test_set_public_domain.json")]).records, {"books": 2}),
    "sim_arena_math": (lambda p: sim_arena.convert("math", p("sim_math")), {"subject": 6, "level": 3}),
    "sim_arena_doc": (lambda p: sim_arena.convert("doc", p("sim_doc")), {"document": 3}),
}


@pytest.mark.parametrize("name", REAL)
def test_real_records_tell_their_groups_in_few_values(name):
    convert, want = REAL[name]

    def path(*parts):
        found = DATA.joinpath(*parts)
        if not found.exists():
            pytest.skip(
                f"real records are absent: {found} (set SOUL_DATA_SOURCES to the folder that holds {parts[0]}/)"
            )
        return found

    records = convert(path)
    found = [groups(name, record) for record in records[:: max(1, len(records) // 400)]]
    values = {
        kind: Counter(of[kind] for of in found if kind in of) for kind in {kind: None for of in found for kind in of}
    }
    assert {kind: len(counts) for kind, counts in values.items()} == want, values
    assert all(sum(counts.values()) == len(found) for counts in values.values()), "a row without a group"
    assert all(len(counts) <= MOST_VALUES for counts in values.values())
