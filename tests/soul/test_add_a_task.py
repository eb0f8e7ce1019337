"""docs/add_a_task.md from its first line to its last but the training, which is tests/e2e/test_every_task.py."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from soul.examples.contract import CHECKS
from tests.soul.add_a_task import files, install

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    return install(tmp_path_factory.mktemp("tips"))


def run(package, *command):
    environment = {**os.environ, "PYTHONPATH": f"{package}{os.pathsep}{ROOT}"}
    return subprocess.run(command, cwd=package, env=environment, capture_output=True, text=True, timeout=120)


def test_the_task_is_forty_lines():
    lines = files()["tips.py"].splitlines()
    assert len([line for line in lines if line.strip()]) <= 40


def test_the_contract_as_the_page_tests_it(package):
    done = run(package, sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_tips.py")
    assert done.returncode == 0 and f"{len(CHECKS)} passed" in done.stdout, done.stdout + done.stderr


def test_rows_files_and_names(package, tmp_path):
    out = tmp_path / "data" / "sim_rl_data" / "tips_rl_train.parquet"
    done = run(package, sys.executable, "-m", "soul.examples", "tips", "--rows", "20", "--out", str(out))
    assert done.returncode == 0, done.stderr
    done = run(package, sys.executable, "-m", "data.check", str(out))
    assert done.returncode == 0 and "tips" in done.stdout, done.stdout + done.stderr
    launches = "from soul import tasks; print(*(launch.train for launch in tasks.launches('tips,hitom')))"
    done = run(package, sys.executable, "-c", launches)
    assert done.returncode == 0 and done.stdout.split()[0] == out.stem, done.stdout + done.stderr


EVALUATE = """
import asyncio, statistics
from soul import examples
from soul.examples.contract import rewards
example = examples.load("tips")
rows = [example.row(n) for n in range(50)]
print(*(statistics.fmean(asyncio.run(rewards(example, rows, style))) for style in ("oracle", "random", "contrarian")))
"""


def test_the_right_player_wins(package):
    done = run(package, sys.executable, "-c", EVALUATE)
    best, chance, worst = map(float, done.stdout.split())
    assert best == 1.0 > chance > worst == 0.0, done.stderr
