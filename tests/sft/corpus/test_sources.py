"""Files are found as they are named, and a mistake in naming them is said with its remedy."""

from fractions import Fraction
from pathlib import Path

import pytest

from sft.corpus.sources import find_files


@pytest.fixture
def shards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with files of several namings, and the place to look from."""
    for name in ("chat/b.parquet", "chat/a.parquet", "tom.parquet", "odd:name.parquet", "odd.parquet:3"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_words_and_ratios(shards: Path) -> None:
    chat, tom = find_files("chat/*.parquet:1.5 tom.parquet", None, "train")
    assert [file.name for file in chat.files] == ["a.parquet", "b.parquet"]
    assert (chat.ratio, tom.ratio) == (Fraction(3, 2), Fraction(1))
    assert all(file.is_absolute() for file in chat.files)


def test_a_list_may_hold_blanks_and_colons(shards: Path) -> None:
    (shards / "with blank.parquet").touch()
    groups = find_files(["with blank.parquet:2", "odd:name.parquet", "odd.parquet:3"], None, "val")
    assert [(group.files[0].name, group.ratio) for group in groups] == [
        ("with blank.parquet", 2),
        ("odd:name.parquet", 1),
        ("odd.parquet:3", 1),
    ]


def test_discovery_takes_the_first_pattern_that_matches(tmp_path: Path) -> None:
    names = [
        "my_train_set.parquet",
        "train/x.parquet",
        "train-0.parquet",
        "train_shard_1.parquet",
        "train_shard_0.parquet",
    ]
    expected = [
        ["my_train_set.parquet"],
        ["x.parquet"],
        ["train-0.parquet"],
        ["train_shard_0.parquet", "train_shard_1.parquet"],
    ]
    found = []
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
        (group,) = find_files(None, tmp_path, "train")
        found.append([file.name for file in group.files])
    assert found == [*expected[:3], ["train_shard_1.parquet"], expected[3]]
    assert find_files(None, tmp_path, "val") == []
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "validation-00000-of-00001.parquet").touch()  # as the hub names it
    (group,) = find_files(None, tmp_path, "val")
    assert [file.name for file in group.files] == ["validation-00000-of-00001.parquet"]
