"""Tasks keep their word on real records too: source -> builder (`data/`) -> file -> rows -> an example's players.

The records lie outside of the repository (`samples.DATA`); what is absent is skipped, and says so.
"""

import random

import pytest

from data.builder_cli import builder_of
from data.sources import BUILDS
from soul import examples
from soul.examples.contract import CHECKS, check_the_oracle_gets_full_marks
from soul.rows.task_files import read_rows
from soul.suites import soul_v1
from tests.published import publish
from tests.soul.samples import DATA

# Fewer rows of sources that hold thousands.
FEWER = {"userllm": ("--per-source", "40")}
TASKS = {name: soul_v1.SETS[name].task for name in soul_v1.SETS if name in BUILDS}


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    """A folder with the real records under their published names."""
    if not DATA.is_dir():
        pytest.skip(f"real records are absent: {DATA} (set SOUL_DATA_SOURCES to the folder that holds them)")
    publish(folder := tmp_path_factory.mktemp("published") / "sources", DATA)
    return folder


@pytest.mark.parametrize("name", TASKS)
def test_the_contract(name, sources, tmp_path):
    found, out = BUILDS[name].find(sources), tmp_path / "rows.parquet"
    if not found.files:
        pytest.skip(f"no real records of {name}")
    builder_of(BUILDS[name].builder).build([*BUILDS[name].arguments(found, out), *FEWER.get(name, ())])
    items = read_rows([str(out)])
    assert {item.task.name for item in items} == {TASKS[name]}
    example, row = examples.load(TASKS[name]), random.Random(name).choice(items).row
    # The judges by rule are made for invented rows: on real ones the order of the players counts, full marks do not.
    judged = "judge" in example.task.calls_per_episode
    for check in CHECKS:
        if not judged or check is not check_the_oracle_gets_full_marks:
            check(example, row)
