"""What all builders share: rows of tables, and splits by group."""

import importlib
from pathlib import Path

import pytest

from data.reading import read_csv
from soul.rows.overlap import HeldOut
from soul.rows.task_files import read_rows
from tests.soul.samples import DATA


def test_a_row_of_a_table_is_named_and_keeps_the_ends_of_its_lines(tmp_path):
    path = tmp_path / "a.csv"
    path.write_bytes(b'x,y\n1,"two\r\nlines"\n3,4\n')
    assert list(read_csv(path)) == [
        (f"{path}: row 1", {"x": "1", "y": "two\r\nlines"}),
        (f"{path}: row 2", {"x": "3", "y": "4"}),
    ]


# Builder -> words of `convert`, files and folders below the real records.
SPLITS = {
    "alignx": ["alignx/P-Soups_student_phd_sample.json"],
    "fantom": ["fantom/*.csv"],
    "hitom": ["hitom/Hi-ToM_data.json"],
    "lifechoices": ["lifechoices/*.json"],
    "mirrorbench": ["mirrorbench/*_mirror.jsonl"],
    "mistakes": ["mistakes/eedi_*.csv"],
    "paratomi": ["paratomi/paraphrased_tomi_test.txt"],
    "social_r1": ["social_r1/*.jsonl"],
    "sotopia": ["sotopia"],
    "userllm": ["userllm/*.jsonl"],
}


@pytest.mark.skipif(not DATA.is_dir(), reason=f"no benchmark records in {DATA} (SOUL_DATA_SOURCES)")
@pytest.mark.parametrize("name", SPLITS)
def test_no_group_is_on_both_sides_of_a_split(name: str, tmp_path: Path) -> None:
    files = [str(path) for pattern in SPLITS[name] for path in sorted(DATA.glob(pattern))]
    train, val = tmp_path / "train.parquet", tmp_path / "val.parquet"
    module = importlib.import_module(f"data.{name}")
    built = module.build(["convert", *files, "--train-out", str(train), "--val-out", str(val)])
    sides = [read_rows([str(path)]) for path in (train, val)]
    assert [len(side) for side in sides] == [file.rows for file in built.files] and all(sides)
    assert not HeldOut(sides[1]).overlaps(sides[0])
