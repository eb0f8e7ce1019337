"""`soul push --data` against a hub on 127.0.0.1: the dataset's page, what is withheld, and an upload that broke off."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import yaml

pytest.importorskip("huggingface_hub")

from data import rows, train
from data.licences import CC_BY_SA_4, PRISM, Licence, Origin
from data.training.table import TRAINING
from soul import examples
from soul.cli.error_border import USER_ERROR
from soul.push.__main__ import main
from soul.rows import data_card
from tests.soul.push.fake_hub import FakeHub, push

HITOM = "hitom_rl_train.parquet"


@pytest.fixture
def built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Path:
    """DATA_DIR with Hi-ToM's training file and an evaluation file."""
    monkeypatch.setitem(TRAINING, "hitom", replace(TRAINING["hitom"], options=("--stories", "10")))
    (tmp_path / "sources").mkdir()
    assert train.main([str(tmp_path / "sources"), "--out", str(tmp_path / "data"), "--tasks", "hitom"]) == 0
    record = {"index": 0, **examples.load("hitom").record(0)}
    rows.write_rows(tmp_path / "data" / "sim_eval_data" / "hitom_val.parquet", "hitom", [record])
    capsys.readouterr()
    return tmp_path / "data"


def add(data: Path, name: str, *licences: Licence, **fields: object) -> Path:
    """Another training file with its card, made from sources under these licences."""
    file = data / "sim_rl_data" / name
    rows.write_rows(file, "hitom", [{"index": 0, **examples.load("hitom").record(0), **fields}])
    card = data_card.read(data / "sim_rl_data" / HITOM)
    assert card is not None
    stated = [Origin("github.com/a/b", licence).stated() for licence in licences]
    about = card.model_copy(update={"file": name, "sha256": data_card.sha256(file), "rows": 1, "licences": stated})
    data_card.write(file, about)
    return file


def test_files_cards_and_a_page_arrive_as_a_dataset(hub: FakeHub, built: Path) -> None:
    more = add(built, "more.parquet", CC_BY_SA_4)
    done = push(hub, "--data", str(built), "me/rows")
    assert done.returncode == 0, done.stderr
    assert hub.repos == {"datasets/me/rows": False}
    files = hub.files["datasets/me/rows"]
    cards = {f"{HITOM}.card.json", "more.parquet.card.json"}
    assert files.keys() == {"README.md", HITOM, "more.parquet"} | cards
    assert files["more.parquet"] == more.read_bytes()
    assert f"Not uploaded: {HITOM}.left_out.jsonl" in done.stdout
    _, header, page = files["README.md"].decode().split("---\n", 2)
    said = yaml.safe_load(header)
    assert said["license"] == ["apache-2.0", "cc-by-sa-4.0"]
    assert said["configs"] == [
        {"config_name": name.removesuffix(".parquet"), "data_files": [{"split": "train", "path": name}]}
        for name in (HITOM, "more.parquet")
    ]
    assert "hitom" in said["tags"]
    assert f"| {HITOM} | hitom | 300 | 60 |" in page and "`python -m data.hitom generate" in page
    assert "| github.com/a/b | CC BY-SA 4.0 |" in page
    assert "The file was not compared with evaluation files." in page


def test_an_upload_that_broke_off_continues(hub: FakeHub, built: Path) -> None:
    add(built, "more.parquet", CC_BY_SA_4)
    hub.room = 1
    broken = push(hub, "--data", str(built), "me/rows")
    assert broken.returncode == 1 and "Run the same command again" in broken.stderr
    assert len(hub.stored) == 1 and hub.files == {}  # no half of a dataset
    first, hub.room = set(hub.stored), 2  # the file that has arrived is not sent again
    done = push(hub, "--data", str(built), "me/rows")
    assert done.returncode == 0, done.stderr
    assert first < hub.stored.keys() and len(hub.stored) == hub.put == 2
    assert {HITOM, "more.parquet"} < hub.files["datasets/me/rows"].keys()


def test_what_must_not_be_published_goes_to_a_private_repository_only(hub: FakeHub, built: Path) -> None:
    add(built, "userllm.parquet", PRISM)
    refused = push(hub, "--data", str(built), "me/rows")
    assert refused.returncode == USER_ERROR and hub.repos == {}
    assert "userllm.parquet: github.com/a/b (people's texts CC BY 4.0, models' replies CC BY-NC 4.0)" in refused.stderr
    hub.repos["datasets/me/open"] = False  # --private does not change a repository that exists
    refused = push(hub, "--data", str(built), "me/open", "--private")
    assert refused.returncode == USER_ERROR and "cannot go to a public repository" in refused.stderr
    assert hub.stored == {}
    done = push(hub, "--data", str(built), "me/rows", "--private")
    assert done.returncode == 0, done.stderr
    assert hub.repos["datasets/me/rows"] and "userllm.parquet" in hub.files["datasets/me/rows"]


@pytest.mark.parametrize(
    ("question", "says"),
    [
        ("Where is sk-" + "a1B2" * 8 + "?", "row 0: this looks like a key"),
        ("See https://mia:geheim17@example.org/x", "row 0: this looks like a key"),
        ("See https://example.org/x", None),
    ],
)
def test_a_key_in_a_row_is_refused(
    built: Path, question: str, says: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    add(built, "more.parquet", CC_BY_SA_4, question=question)
    code = main(["--data", str(built), "me/rows", "--private", "--dry-run"])
    shown = capsys.readouterr().err
    assert (code, says is None) == (0, True) or (code == USER_ERROR and f"more.parquet, {says}" in shown)


def test_a_folder_without_cards_is_refused_and_a_card_without_licences_withheld(
    built: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    add(built, "older.parquet")
    assert main(["--data", str(built), "me/rows", "--dry-run"]) == USER_ERROR
    assert "older.parquet: its card states no licences, so build it again" in capsys.readouterr().err
    assert main(["--data", str(built / "sim_eval_data"), "me/rows", "--dry-run"]) == USER_ERROR
    assert "no training file with a data card" in capsys.readouterr().err


def test_rows_of_these_tasks_alone_may_be_published() -> None:
    free = {name for name, build in TRAINING.items() if {origin.licence.share for origin in build.origins} == {"yes"}}
    assert free == {"hitom", "sotopia"}
    for build in TRAINING.values():
        for origin in build.origins:
            assert (origin.licence.share == "yes") == (not origin.licence.why), origin
