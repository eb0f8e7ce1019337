"""Tasks keep their word on real records too: source -> builder (`data/`) -> file -> rows -> an example's players.

The records lie outside of the repository (`samples.DATA`); what is absent is skipped, and says so.
"""

import asyncio
import importlib
import json
import random
import statistics
from pathlib import Path
from typing import NamedTuple

import pytest
from samples import DATA

from agents import examples
from agents.rows import read_rows
from agents.testing.contract import CHECKS, check_the_oracle_gets_full_marks, rewards

ROWS = 50  # of each task, drawn with a seed; all where there are fewer
# Talks of twenty turns with partners take long: fewer rows of these, and one for the checks.
TALKS = {"sotopia": 12, "coser": 12}


class Build(NamedTuple):
    """How the rows of a task are built: `python -m data.BUILDER convert FIRST FOLDER/PATTERN... REST --out FILE`."""

    builder: str
    folder: str
    pattern: str = ""  # files of the folder; without a pattern the folder itself
    first: tuple[str, ...] = ()
    rest: tuple[str, ...] = ()


BUILDS = {
    "hitom": Build("hitom", "hitom", "*.json"),
    "paratomi": Build("paratomi", "paratomi", "*.txt", rest=("--limit", "200")),
    "fantom": Build("fantom", "fantom", "*.csv"),
    "mistakes": Build("mistakes", "mistakes", "eedi_*.csv"),
    "twinvoice": Build("twinvoice", "twinvoice", "*.jsonl"),
    "social_r1": Build("social_r1", "social_r1", "*.jsonl"),
    "lifechoices": Build("lifechoices", "lifechoices", "*.json"),
    **{
        name: Build("alignx", "alignx", "*.json", rest=("--set", name))
        for name in ("alignx", "alignx_demo", "alignx_pair", "alignx_ugc", "alignx_arbitrary", "alignx_history16")
    },
    "humanual-opinion": Build("humanual", "humanual_opinion", "*.json", rest=("--set", "opinion")),
    "userllm": Build("userllm", "userllm", "*[lv]", rest=("--per-source", "40")),
    "mirrorbench": Build("mirrorbench", "mirrorbench", "*.jsonl", rest=("--limit", "120")),
    "sim_arena_math": Build("sim_arena", "sim_math", first=("math",)),
    "sim_arena_doc": Build("sim_arena", "sim_doc", first=("doc",)),
    "sotopia": Build("sotopia", "sotopia"),
    "coser": Build("coser", "coser", "*.json"),
}
# What the folders hold beside the sources, and what is in them that is no source of this builder.
NO_SOURCE = {"SOURCE.txt", "mae_data.json", "percept_tomi_sample.csv"}


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
            built[name] = _built(name, build, folder, tmp_path_factory.mktemp(name))
        return built[name]

    return rows


def _built(name: str, build: Build, folder: Path, out: Path) -> list:
    sources = sorted(path for path in folder.glob(build.pattern) if path.name not in NO_SOURCE) if build.pattern else []
    rest = list(build.rest)
    if name == "humanual-opinion":  # real posts without answers: invented ones
        example, posts = examples.load(name), json.loads(sources[0].read_text())
        replies = {key: example.record(number) for number, key in enumerate(posts)}
        (out / "replies.json").write_text(json.dumps(replies))
        rest += ["--replies", str(out / "replies.json")]
    file = str(out / "rows.parquet")
    arguments = ["convert", *build.first, *map(str, sources or [folder]), *rest, "--out", file]
    importlib.import_module(f"data.{build.builder}").main(arguments)
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
