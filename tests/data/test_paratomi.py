"""ParaToMi task files: both sources, and which of them share stories."""

import csv

import pytest

from data import paratomi
from soul.tasks.paratomi import story_key
from tests.data.source_files import needs
from tests.soul.samples import DATA

TEXT = DATA / "paratomi" / "paraphrased_tomi_test.txt"
needs_records = needs(TEXT)


def key(record):
    return story_key(record["story"], record["question"])


@needs_records
def test_every_paraphrased_question_has_its_answer_among_its_candidates():
    records = paratomi.convert(TEXT)
    assert len(records) == len(TEXT.with_suffix(".trace").read_text().splitlines())
    for record in records:
        assert record["correct_answer"] in record["cands"] and 2 <= len(record["cands"]) <= 4
        assert len(set(record["cands"])) == len(record["cands"])
        assert not any(sentence[0].isdigit() or "\t" in sentence for sentence in record["story"])


@needs_records
def test_without_a_trace_the_wording_tells_the_type(tmp_path):
    (tmp_path / "test.txt").write_text(TEXT.read_text())
    pairs = list(zip(paratomi.convert(TEXT), paratomi.convert(tmp_path / "test.txt"), strict=True))
    assert {worded["qType"] for _, worded in pairs} == {"first_order", "second_order", "memory", "reality"}
    assert all(traced["qType"].startswith(worded["qType"]) for traced, worded in pairs)
    assert [{**traced, "qType": ""} for traced, _ in pairs] == [{**worded, "qType": ""} for _, worded in pairs]


def test_one_story_in_other_words_has_the_same_key():
    asked = {"question": "Where is the hat really?"}
    one = {**asked, "story": ["Mia entered the den.", "The hat is in the treasure chest."]}
    other = {**asked, "story": ["The den is where Mia went.", "Inside the treasure_chest is a hat."]}
    third = {**asked, "story": ["Ava entered the den.", "The hat is in the treasure chest."]}
    assert key(one) == key(other) != key(third)


def test_table_lists_are_read_as_literals_never_run(tmp_path):
    with (tmp_path / "x.csv").open("w", newline="") as lines:
        writer = csv.writer(lines)
        writer.writerow(["story", "cands", "question", "answer", "qType"])
        writer.writerow(["__import__('os').getcwd()", "['a', 'b']", "Where?", "a", "reality"])
    with pytest.raises(ValueError, match=r"x\.csv: row 1: field 'story' is not a Python list"):
        paratomi.convert(tmp_path / "x.csv")
