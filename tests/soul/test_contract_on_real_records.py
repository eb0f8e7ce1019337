"""Tasks keep their word on real records too: source -> builder (`data/`) -> file -> rows -> an example's players.

The records lie outside of the repository (`samples.DATA`); what is absent is skipped, and says so.
"""

import importlib
import random
from pathlib import Path

import pytest

from data.sources import BUILDS
from soul import examples
from soul.examples.contract import CHECKS, check_the_oracle_gets_full_marks
from soul.rows.task_files import read_rows
from soul.suites import soul_v1
from tests.published import publish
from tests.soul.samples import DATA

ROWS = 50  # of each task, drawn with a seed; all where there are fewer
# Talks of twenty turns with partners take long: fewer rows of these, and one for the checks.
TALKS = {"sotopia": 12, "coser": 12}


# Fewer rows of sources that hold thousands.
FEWER = {"userllm": ("--per-source", "40")}
TASKS = {name: soul_v1.SETS[name].task for name in soul_v1.SETS if name in BUILDS}


@pytest.fixture(scope="module")
def rows_of(tmp_path_factory):
    """Name of a set -> its rows, built once."""
    built = {}

    def rows(name):
        if not DATA.is_dir():
            pytest.skip(f"real records are absent: {DATA} (set SOUL_DATA_SOURCES to the folder that holds them)")
        if not built:
            built[""] = tmp_path_factory.mktemp("published") / "sources"
            publish(built[""], DATA)
        if name not in built:
            built[name] = _built(name, built[""], tmp_path_factory.mktemp(name) / "rows.parquet")
        return built[name]

    return rows


def _built(name: str, sources: Path, out: Path) -> list:
    found = BUILDS[name].find(sources)
    if not found.files:
        pytest.skip(f"no real records of {name}")
    builder = importlib.import_module(f"data.{BUILDS[name].builder}")
    builder.build([*BUILDS[name].arguments(found, out), *FEWER.get(name, ())])
    items = read_rows([str(out)])
    assert {item.task.name for item in items} == {TASKS[name]}
    rows = [item.row for item in items]
    return random.Random(name).sample(rows, min(TALKS.get(name, ROWS), len(rows)))


@pytest.mark.parametrize("name", TASKS)
def test_the_contract(name, rows_of):
    rows, example = rows_of(name), examples.load(TASKS[name])
    # The judges by rule are made for invented rows: on real ones the order of the players counts, full marks do not.
    judged = "judge" in example.task.calls_per_episode
    checks = [check for check in CHECKS if not judged or check is not check_the_oracle_gets_full_marks]
    for row in rows[: 1 if name in TALKS else 2]:
        for check in checks:
            check(example, row)
