"""docs/add_a_task.md and `soul init`; tests/e2e/test_every_task.py trains the package."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from soul.cli.main import main
from soul.examples.contract import CHECKS
from soul.examples.endpoint import answer
from soul.testing import FakeOpenAI
from tests.soul.add_a_task import PAGE, install_new, install_tips, page_files

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    return install_new(tmp_path_factory.mktemp("new"))


def run(package, *command, **environment):
    environment = {**os.environ, "PYTHONPATH": f"{package}{os.pathsep}{ROOT}", **environment}
    return subprocess.run(command, cwd=package.parent, env=environment, capture_output=True, text=True, timeout=180)


def test_the_page_shows_the_task_that_is_made(package):
    assert page_files()["dilemmas/__init__.py"].strip() == (package / "dilemmas" / "__init__.py").read_text().strip()
    assert not re.search(r"\{\{|\}\}", "".join(f.read_text() for f in package.rglob("*.*") if f.suffix == ".py"))


def test_the_commands_of_its_readme_work_as_printed(package):
    """All but the installation, which `install_new` stands for, playing, and training."""
    done = run(package, sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "dilemmas/tests")
    assert done.returncode == 0 and f"{len(CHECKS)} passed" in done.stdout, done.stdout + done.stderr
    lines = [line.partition("#")[0] for line in (package / "README.md").read_text().splitlines()]
    for line in (line for line in lines if line.startswith("soul examples ")):
        done = run(package, sys.executable, "-m", *shlex.split(line))
        assert done.returncode == 0, done.stderr
    with FakeOpenAI(answer) as fake:
        line = next(line for line in lines if line.startswith("soul evaluate ")).replace("URL", fake.url)
        words = [*shlex.split(line), "policy.api_key_env=none", "feedback.api_key_env=none"]
        done = run(package, sys.executable, "-m", *words, OPENAI_BASE_URL=fake.url, OPENAI_API_KEY="none")
    assert done.returncode == 0 and "dilemmas" in done.stdout, done.stdout + done.stderr


def test_rows_of_your_own_become_a_task_file(package):
    source = package.parent / "decisions.csv"
    source.write_text(
        "who,situation,options,label\na tired nurse,The bus is late.,\"['I walk.', 'I wait.']\",I walk.\n"
    )
    line = next(line for line in PAGE.read_text().splitlines() if line.startswith("soul rows "))
    assert run(package, sys.executable, "-m", *shlex.split(line)).returncode == 0
    code = re.search(r"```python\n(table = .*?)```", PAGE.read_text(), re.DOTALL)[1]
    out = shlex.split(line)[-1]
    (package.parent / out).unlink()
    done = run(package, sys.executable, "-c", f"import pandas\n{code}")
    assert done.returncode == 0, done.stderr
    done = run(package, sys.executable, "-m", "data.check", out)
    assert done.returncode == 0 and "dilemmas" in done.stdout, done.stdout + done.stderr


def test_a_name_that_is_taken_is_refused(tmp_path, capsys):
    for name in ("hitom", "json", "Mine", "soul"):
        with pytest.raises(SystemExit):
            main(["init", name, "--out", str(tmp_path)])
    (tmp_path / "mine").mkdir()
    assert main(["init", "mine", "--out", str(tmp_path)]) == 2 and "exists" in capsys.readouterr().err


EVALUATE = """
import asyncio, statistics
from soul import examples
from soul.examples.contract import CHECKS, rewards
example = examples.load("tips")
for check in CHECKS:
    check(example, example.row(0))
rows = [example.row(n) for n in range(50)]
print(*(statistics.fmean(asyncio.run(rewards(example, rows, style))) for style in ("oracle", "random", "contrarian")))
"""


def test_a_score_of_your_own_fulfils_the_contract_and_the_right_player_wins(tmp_path):
    done = run(install_tips(tmp_path), sys.executable, "-c", EVALUATE)
    assert done.returncode == 0, done.stderr
    best, chance, worst = map(float, done.stdout.split())
    assert best == 1.0 > chance > worst == 0.0
