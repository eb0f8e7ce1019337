"""FanToM task files: shuffled choices, conversations kept together, clear errors."""

import csv

from data import fantom
from tests.data.source_files import needs
from tests.soul.samples import DATA

FILES = sorted((DATA / "fantom").glob("*.csv"))
needs_records = needs(*FILES)

LONG = "Ann: This line is long enough to tell one conversation from any other conversation."


@needs_records
def test_the_shuffled_answer_is_still_the_gold_answer():
    gold = {}
    for path in FILES:
        with path.open(newline="", encoding="utf-8") as lines:
            gold |= {(r["context"], r["question"], path.name): r["gt_answer"] for r in csv.DictReader(lines)}
    records = fantom.convert(FILES)
    assert len(records) == len(gold) == 462
    for r in records:
        name = f"FANToM_tom_belief_{r['missed_info_accessibility']}_short_context_{r['tom_type']}.csv"
        answer = r["answer_choices"][r["correct_answer"]]
        assert answer == gold[r["context"], r["question"], name]
        assert sorted([answer, r["wrong_answer"]]) == sorted(r["answer_choices"]) and answer != r["wrong_answer"]
        assert r["question_type"] == f"tom:belief:{r['missed_info_accessibility']}:multiple-choice"


def test_overlapping_excerpts_are_one_conversation():
    contexts = [
        f"Ann: Hi.\n{LONG}",
        f"Bob: Hello.\n{LONG}\n{LONG}!",
        f"Eve: Yes.\n{LONG}!",
        "Ann: Hey.\nBob: Hi.",
    ]
    ids = fantom.conversation_ids(contexts)
    assert len({ids[context] for context in contexts[:3]}) == 1
    assert ids[contexts[3]] != ids[contexts[0]]
    assert fantom.conversation_ids(contexts[::-1]) == ids
