"""New tellings of ParaToMi's stories: the rules that they must pass, and both stages with a rule as the models."""

import json
import re
from pathlib import Path

import pytest

from data import paratomi, paratomi_paraphrase
from data.paratomi_paraphrase import Telling, fault, items
from soul.rows.overlap import group_keys
from soul.rows.task_files import read_rows
from soul.testing import FakeOpenAI, Json
from tests.data.source_files import needs
from tests.soul.samples import DATA

TRAIN = DATA / "paratomi" / "train_sample.txt"
STORY = [
    "Mia entered the hall.",
    "The melon is in the red_box.",
    "Mia moved the melon to the crate.",
    "Mia left the hall.",
]
GOOD = [
    "In the hall appeared Mia.",
    "In the red_box lies the melon.",
    "It was the crate that Mia took the melon to.",
    "Mia quit the hall.",
]


@pytest.mark.parametrize(
    ("change", "wrong"),
    [
        ({}, ""),
        ({0: "In the attic appeared Mia."}, "sentence 1 must name Mia, hall"),
        ({1: "In the red_box lies the lime."}, "sentence 2 must name melon, red_box"),
        ({2: "It was the crate that Mia and Tom took the melon to."}, "sentence 3 must name"),
        ({3: "Then Mia quit the hall."}, "must name Mia, hall"),
        ({0: STORY[0], 1: STORY[1]}, "half of the sentences are copied"),
    ],
)
def test_what_is_wrong_with_a_telling(change, wrong):
    (item,) = items([STORY], ["lime", "melon"])
    told = [change.get(place, sentence) for place, sentence in enumerate(GOOD)]
    if change == {1: "In the red_box lies the lime."}:
        assert fault(item, Telling(sentences=told)).startswith("a sentence names others")
    else:
        found = fault(item, Telling(sentences=told))
        assert wrong in found and bool(found) == bool(wrong)
    assert "another number of sentences" in fault(item, Telling(sentences=told[:3]))


def reworded(sentence: str) -> str:
    """The same words, behind some that name nothing."""
    first = sentence.split()[0]
    lower = first in ("The", "In", "Inside", "There", "On", "At", "A", "An")
    return f"It was so that {sentence[0].lower() if lower else sentence[0]}{sentence[1:]}"


@needs(TRAIN)
def test_kept_tellings_share_the_group_of_their_story(tmp_path):
    records = paratomi.convert(TRAIN)
    stories = {"\n".join(record["story"]) for record in records}
    marked: list[list[str]] = []

    def script(request):
        data = request.data
        if "sentences" in data:
            return Json({"sentences": [reworded(sentence) for sentence in data["sentences"]]})
        marked.append(data["original"])
        return Json({"different": [1] if data["original"] == marked[0] else []})

    out = tmp_path / "out.parquet"
    with FakeOpenAI(script) as fake:
        models = [f"judge.base_url={fake.url}", "judge.api_key_env=none"]
        words = [
            "convert",
            str(TRAIN),
            "--stories",
            str(len(stories)),
            "--out",
            str(out),
            "--stages",
            str(tmp_path / "s"),
        ]
        built = paratomi_paraphrase.build([*words, "--models", *models])
        asked = len(fake.requests)
        assert (
            paratomi_paraphrase.build([*words, "--models", *models]).rows == built.rows and len(fake.requests) == asked
        )
    assert built.left_out[f"stories: {paratomi_paraphrase.DIFFERENT}"] == 1
    dropped = sum(built.left_out.values())
    assert dropped <= 3, built.left_out
    original = tmp_path / "original.parquet"
    paratomi.build(["convert", str(TRAIN), "--out", str(original)])
    groups = {key for row in read_rows([str(original)]) for key in group_keys(row)}
    rows = read_rows([str(out)])
    assert {key for row in rows for key in group_keys(row)} <= groups
    assert not {"\n".join(row.row.story) for row in rows} & stories


@needs(TRAIN)
def test_the_plan_names_both_stages_and_asks_nothing(tmp_path: Path):
    words = ["convert", str(TRAIN), "--stories", "7", "--stages", str(tmp_path / "s"), "--out", str(tmp_path / "o")]
    plan = paratomi_paraphrase.BUILDER.planned(words)
    assert [re.match(r"(\w+): 7 calls", line)[1] for line in plan] == ["tellings", "comparisons"]
    assert not (tmp_path / "s").exists() and json.dumps(plan)
