"""BehaviorChain: the row as a JSON string, as an object and flat; what is missing is left out of the prompt."""

import json

import pytest

from soul.tasks.behavior_chain import BehaviorChain, BehaviorChainRow
from tests.soul.evaluate.finished_samples import scored_by_rule, shown_for_the_set
from tests.soul.tasks.one_turn_samples import BEHAVIOR_CHAIN, tagged

TASK = BehaviorChain()
RAW = json.loads(BEHAVIOR_CHAIN["raw"])


def row_with(**fields):
    return BehaviorChainRow.model_validate({"index": 0, "raw": json.dumps({**RAW, **fields})})


def test_json_object_and_flat_are_one_row():
    row = BehaviorChainRow.model_validate(BEHAVIOR_CHAIN)
    assert row == BehaviorChainRow.model_validate({"index": 0, "raw": RAW})
    assert row == BehaviorChainRow.model_validate({"index": 0, **RAW})
    assert row == BehaviorChainRow.model_validate({"raw": {**RAW, "index": 0}})
    flat = {key: json.dumps(value) if isinstance(value, list | dict) else value for key, value in RAW.items()}
    assert row == BehaviorChainRow.model_validate({"index": 0, **flat})


def test_the_prompt_tells_all_of_it_in_order():
    text = TASK.prompt(row_with())[0]["content"]
    parts = ["Tess Arden", "stubborn", "Chapter 1: Tess loses the boat.", "bread.\nWhat the person did: Tess turns"]
    parts += ["harbour master", "Question: What does Tess Arden do?\nA. She signs.", "D. She bargains."]
    places = [text.index(part) for part in parts]
    assert places == sorted(places)


def test_a_chain_counts_its_runs_of_right_links():
    chains = {"one": "CCAC", "two": "AAC", "three": "CC"}  # C is right
    placed = [(name, place, said) for name, answers in chains.items() for place, said in enumerate(answers)]
    samples = []
    for name, place, said in reversed(placed):  # the file's order does not matter
        record = {**RAW, "chain": name, "link": place + 1, "chain_links": len(chains[name])}
        samples.append(scored_by_rule("behavior_chain", record, tagged(said), len(samples)))
    found = shown_for_the_set(samples)
    assert found["chain_accuracy"] == pytest.approx(((1 + 2 + 1) / 10 + 1 / 6 + 3 / 3) / 3)
    assert found["longest_run"] == pytest.approx((2 / 4 + 1 / 3 + 2 / 2) / 3)
    # A chain of which a link has no answer is no chain.
    assert shown_for_the_set(samples[1:])["longest_run"] == pytest.approx((2 / 4 + 1 / 3) / 2)
