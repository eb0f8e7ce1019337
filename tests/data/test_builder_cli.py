"""What all builders share: draws of whole groups. tests/data/test_sets.py builds every source that there is."""

from pathlib import Path

import pytest

from data.builder_cli import builder_of
from soul.rows.overlap import HeldOut
from soul.rows.task_files import read_rows
from tests.soul.samples import DATA

# Builder -> files below the real records, and its draw.
DRAWS = {
    "fantom": ("fantom/*.csv", ["--test-conversations", "9"]),
    "lifechoices": ("lifechoices/*.json", ["--rows", "90"]),
    "mistakes": ("mistakes/eedi_*.csv", ["--rows", "9"]),
}


@pytest.mark.skipif(not DATA.is_dir(), reason=f"no benchmark records in {DATA} (SOUL_DATA_SOURCES)")
@pytest.mark.parametrize("name", DRAWS)
def test_no_row_is_lost_and_no_group_is_on_both_sides_of_a_draw(name: str, tmp_path: Path) -> None:
    pattern, draw = DRAWS[name]
    every, train, val = (str(tmp_path / f"{side}.parquet") for side in ("all", "train", "val"))
    build, files = builder_of(name).build, [str(path) for path in sorted(DATA.glob(pattern))]
    build(["convert", *files, "--out", every])
    build(["convert", *files, *draw, "--train-out", train, "--val-out", val])
    whole, *sides = (read_rows([side]) for side in (every, train, val))
    assert all(sides) and sum(map(len, sides)) == len(whole) and not HeldOut(sides[1]).overlaps(sides[0])
