"""Training starts from the files that `python -m data.train` builds from real records: three tasks, two steps."""

import json
from pathlib import Path

import pytest

from data import train
from data.training.building import file_of
from recipe.demo import smoke_model
from soul.examples.endpoint import answer
from soul.rows.data_card import read
from soul.testing import FakeOpenAI
from tests.e2e import every_task
from tests.published import publish
from tests.soul.samples import DATA

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(not DATA.is_dir(), reason=f"no benchmark records in {DATA} (SOUL_DATA_SOURCES)"),
]

NAMES = ("hitom", "paratomi", "lifechoices")
# Two steps of six prompts are all rows that are drawn. Short answers: what the model says does not matter.
OVERRIDES = [
    "algorithm.objective=ditto_refined_only",
    "data.train_batch_size=6",
    "data.mixture.rows_per_task=4",
    "data.max_response_length=128",
    "data.allow_overlap=false",  # built files share nothing with what is evaluated
]


def test_three_built_files_are_trained_on(tmp_path: Path) -> None:
    publish(tmp_path / "sources", DATA)
    data = tmp_path / "data"
    assert train.main([str(tmp_path / "sources"), "--out", str(data), "--tasks", ",".join(NAMES)]) == 0
    smoke_model.make([str(file_of(name, data)) for name in NAMES], tmp_path / "model", steps=40)
    with FakeOpenAI(answer) as judge:
        outcome = every_task.train(tmp_path, ",".join(NAMES), judge.url, 600, OVERRIDES)
    log = (outcome.folder / "log.txt").read_text(errors="replace")
    assert outcome.code == 0 and {1, 2} <= set(outcome.metrics), log[-3000:]
    assert {trace["task"] for trace in outcome.sessions} == set(NAMES)
    described = json.loads((outcome.folder / "run" / "run.json").read_text())["data_cards"]
    cards = {entry["name"]: entry["card"] for entry in described if entry["card"]}
    for name in NAMES:
        card = read(file_of(name, data))
        assert card is not None and cards[card.file]["sha256"] == card.sha256
