"""docs/add_an_objective.md: its files run, its objective trains what it says, its table holds what there is."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import get_args

import pytest

from ditto.objectives import OBJECTIVES
from ditto.objectives.spec import Kind, Objective, Teacher
from tests.ditto.our_step import assert_same_update, ours, settings_of, step_data
from tests.ditto.tiny_step import SEQUENCES, _aggregate, log_probs, mini_batches, old_log_probs, perturbed, tiny_model

DOCS = Path(__file__).resolve().parents[3] / "docs"
PAGE = (DOCS / "add_an_objective.md").read_text(encoding="utf-8")
FILES = dict(re.findall(r"```(?:python|toml)\n# (\S+)\n(.*?)```", PAGE, re.DOTALL))


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page's package as an installer lays it out, entry point included."""
    folder = tmp_path_factory.mktemp("imitate")
    for name, text in FILES.items():
        (folder / name).write_text(text)
    project = tomllib.loads(FILES["pyproject.toml"])["project"]
    info = folder / f"{project['name']}-{project['version']}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n")
    ((group, points),) = project["entry-points"].items()
    (info / "entry_points.txt").write_text(f"[{group}]\n" + "\n".join(f"{k} = {v}" for k, v in points.items()))
    return folder


def test_the_page_holds_every_file() -> None:
    assert set(FILES) == {"imitate.py", "test_imitate.py", "pyproject.toml"}


def test_the_pages_test_passes_where_the_package_is_installed(package: Path) -> None:
    path = os.pathsep.join([str(package), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_imitate.py"]
    environment = {**os.environ, "PYTHONPATH": path}
    done = subprocess.run(command, cwd=package, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and "2 passed" in done.stdout, done.stdout + done.stderr


def test_the_pages_objective_is_the_likelihood_of_the_refined_answers(
    package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Through verl's loss, against its formula in float64."""
    spec = importlib.util.spec_from_file_location("imitate", package / "imitate.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert isinstance(module.OBJECTIVE, Objective)
    rows = [s for s in SEQUENCES if s.kind in ("refined_base", "none")]
    old = old_log_probs(tiny_model(), rows, perturbed)
    settings = settings_of(module.OBJECTIVE)
    step, data = step_data(rows, old, settings, "token-mean", 1, monkeypatch)
    model, theirs = tiny_model(), tiny_model()
    for update, members in enumerate(mini_batches(rows)):
        loss, gradients = ours(model, step, data, "token-mean", settings, ranks=1, splits=2, update=update)
        theirs.zero_grad()
        refined = [rows[i] for i in members if rows[i].valid]
        terms = [[v for v, m in zip(log_probs(theirs, s), s.mask, strict=True) if m] for s in refined]
        expected = -_aggregate(terms, "token-mean")
        assert_same_update(loss, gradients, expected, theirs, 1e-6)


def test_the_pages_name_every_objective_and_every_value_of_a_part() -> None:
    pages = "".join(
        (DOCS / f"{name}.md").read_text(encoding="utf-8") for name in ("objectives", "distilling_objectives")
    )
    for name in OBJECTIVES:
        assert re.search(rf"^## .*\b{name}\b", pages, re.MULTILINE)
        assert re.search(rf"^\| .*`{name}`", pages, re.MULTILINE)
    table = PAGE.split("| field of a part | values |")[1].split("\n\n")[0]
    functions = {f.__name__ for each in OBJECTIVES.values() for part in each.parts for f in (part.advantage, part.loss)}
    for value in (*get_args(Kind), *get_args(Teacher), *functions):
        assert f"`{value}`" in table, value
