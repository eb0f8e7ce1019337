"""BehaviorChain: the row as a JSON string, as an object and flat; what is missing is left out of the prompt."""

import json

from soul.tasks.behavior_chain import BehaviorChain, BehaviorChainRow
from tests.soul.tasks.one_turn_samples import BEHAVIOR_CHAIN

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
