"""What all builders share: every source that there is gives rows that their task plays, and draws of whole groups."""

import importlib
from pathlib import Path

import pytest

from soul.rows.overlap import HeldOut
from soul.rows.task_files import read_rows
from tests.soul.samples import DATA

# Builder -> words of `convert`, files and folders below the real records.
SOURCES = {
    "alignx": ["alignx/P-Soups_student_phd_sample.json"],
    "fantom": ["fantom/*.csv"],
    "lifechoices": ["lifechoices/*.json"],
    "mirrorbench": ["mirrorbench/*_mirror.jsonl"],
    "mistakes": ["mistakes/eedi_*.csv"],
    "paratomi": ["paratomi/paraphrased_tomi_test.txt"],
    "social_r1": ["social_r1/*.jsonl"],
    "sotopia": ["sotopia"],
    "userllm": ["userllm/*.jsonl"],
}
DRAWS = {"fantom": ["--test-conversations", "9"], "lifechoices": ["--rows", "90"], "mistakes": ["--rows", "9"]}


@pytest.mark.skipif(not DATA.is_dir(), reason=f"no benchmark records in {DATA} (SOUL_DATA_SOURCES)")
@pytest.mark.parametrize("name", SOURCES)
def test_rows_can_be_played_and_no_group_is_on_both_sides_of_a_draw(name: str, tmp_path: Path) -> None:
    files = [str(path) for pattern in SOURCES[name] for path in sorted(DATA.glob(pattern))]
    every, train, val = (str(tmp_path / f"{side}.parquet") for side in ("all", "train", "val"))
    build = importlib.import_module(f"data.{name}").build
    whole = len(read_rows([every])) if build(["convert", *files, "--out", every]) else 0
    assert whole > 0
    if name in DRAWS:
        build(["convert", *files, *DRAWS[name], "--train-out", train, "--val-out", val])
        sides = [read_rows([side]) for side in (train, val)]
        assert all(sides) and sum(map(len, sides)) == whole and not HeldOut(sides[1]).overlaps(sides[0])
