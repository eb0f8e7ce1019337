"""Tasks keep their word on real records too: source -> builder (`data/`) -> file -> rows -> an example's players.

The records lie outside of the repository (`samples.DATA`); what is absent is skipped, and says so.
"""

import asyncio
import json
import random
import statistics
from pathlib import Path

import pytest
from samples import DATA

from agents import examples
from agents.rows import read_rows
from agents.testing.contract import CHECKS, check_the_oracle_gets_full_marks, rewards
from data import sets
from data.sets import Build

ROWS = 50  # of each task, drawn with a seed; all where there are fewer
# Talks of twenty turns with partners take long: fewer rows of these, and one for the checks.
TALKS = {"sotopia": 12, "coser": 12}


# Fewer rows of sources that hold thousands.
FEWER = {"paratomi": ("--limit", "200"), "userllm": ("--per-source", "40"), "mirrorbench": ("--limit", "120")}
BUILDS = {**sets.BUILDS, "humanual-opinion": Build("humanual", "humanual_opinion", "*.json", rest=("--set", "opinion"))}


@pytest.fixture(scope="module")
def rows_of(tmp_path_factory):
    """Name -> rows of that task, built once."""
    built = {}

    def rows(name):
        if name not in examples.names():
            pytest.skip(f"there is no example of the task {name}")
        build = BUILDS[name]
        folder = DATA / build.folder
        if not folder.is_dir():
            pytest.skip(f"real records are absent: {folder} (set SOUL_DATA_SOURCES to the folder that holds it)")
        if name not in built:
            built[name] = _built(name, build, tmp_path_factory.mktemp(name))
        return built[name]

    return rows


def _built(name: str, build: Build, out: Path) -> list:
    sources, more = build.sources(DATA), list(FEWER.get(name, ()))
    if name == "humanual-opinion":  # real posts without answers: invented ones
        example, posts = examples.load(name), json.loads(sources[0].read_text())
        replies = {key: example.record(number) for number, key in enumerate(posts)}
        (out / "replies.json").write_text(json.dumps(replies))
        more += ["--replies", str(out / "replies.json")]
    file = str(out / "rows.parquet")
    build.run(sources, Path(file), *more)
    items = read_rows([file])
    assert {item.task.name for item in items} == {name}
    rows = [item.row for item in items]
    return random.Random(name).sample(rows, min(TALKS.get(name, ROWS), len(rows)))


@pytest.mark.parametrize("name", BUILDS)
def test_who_plays_better_scores_higher(name, rows_of):
    rows, example = rows_of(name), examples.load(name)
    oracle, chance, contrarian = (
        statistics.fmean(asyncio.run(rewards(example, rows, style))) for style in ("oracle", "random", "contrarian")
    )
    assert oracle > chance > contrarian, (len(rows), oracle, chance, contrarian)


@pytest.mark.parametrize("name", BUILDS)
def test_the_contract(name, rows_of):
    rows, example = rows_of(name), examples.load(name)
    # The judges by rule are made for invented rows: on real ones the order of the players counts, full marks do not.
    judged = "judge" in example.task.calls_per_episode
    checks = [check for check in CHECKS if not judged or check is not check_the_oracle_gets_full_marks]
    for row in rows[: 1 if name in TALKS else 2]:
        for check in checks:
            check(example, row)
