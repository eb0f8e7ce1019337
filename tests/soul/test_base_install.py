"""The base install: it stays light, and the wheel works by itself.

`soul` and every task load without torch, Ray, verl, vLLM or transformers; a subprocess shows it, because other tests of
this run may have imported them already. The wheel is installed into an empty environment, where an evaluation runs.
"""

import importlib
import importlib.util
import json
import os
import pkgutil
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import soul
from soul.cli.main import COMMANDS
from soul.errors import SoulError

HEAVY = ("torch", "ray", "verl", "vllm", "transformers", "ditto", "tensordict", "datasets", "matplotlib")
REPOSITORY = Path(__file__).resolve().parents[2]

PROBE = """
import importlib, json, sys
modules = json.loads(sys.argv[1])
for module in modules:
    importlib.import_module(module)
from soul import tasks
for name in tasks.CLASSES:
    tasks.load(name)
print(json.dumps(sorted({name.partition(".")[0] for name in sys.modules})))
"""


def loaded_after(modules):
    """The top-level packages in memory once a fresh interpreter has imported these modules and all tasks."""
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(REPOSITORY / "agents"), os.environ.get("PYTHONPATH", "")]),
    }
    done = subprocess.run(
        [sys.executable, "-c", PROBE, json.dumps(modules)],
        capture_output=True,
        text=True,
        timeout=120,
        env=environment,
        cwd=REPOSITORY,
    )
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stdout))


def test_soul_and_all_tasks_load_nothing_heavy():
    optional = {"soul.verifiers", "soul.openenv"}  # their frameworks need environments of their own
    modules = ["soul", *({found.name for found in pkgutil.walk_packages(soul.__path__, "soul.")} - optional)]
    assert {"soul.session", "soul.judge", "soul.testing.server", "soul.tasks.hitom"} <= set(modules)
    loaded = loaded_after(modules)
    assert "openai" in loaded and "pydantic" in loaded  # the probe does look
    assert not loaded & set(HEAVY)


@pytest.mark.parametrize("module, extra", [("soul.verifiers", "verifiers"), ("soul.openenv", "openenv")])
def test_an_adapter_says_how_to_install_its_framework(module, extra):
    if importlib.util.find_spec(extra):
        pytest.skip(f"{extra} is installed")
    with pytest.raises(SoulError, match=re.escape(f"{module} needs {extra}, which is not installed: pip install")):
        importlib.import_module(module)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The repository's wheel."""
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(folder), str(REPOSITORY)]
    subprocess.run(build, check=True, timeout=300)
    (file,) = folder.glob("*.whl")
    return file


@pytest.mark.network
def test_the_wheel_has_every_file_of_the_packages(wheel):
    packages = {"agents/soul": "soul", "agents/soul_gym": "soul_gym", "verl/ditto": "ditto", "sft": "sft"}
    listed = subprocess.run(["git", "ls-files", *packages], cwd=REPOSITORY, capture_output=True, text=True, check=True)
    expected = {name for name in listed.stdout.splitlines() if (REPOSITORY / name).is_file()}
    for folder, package in packages.items():
        expected = {name.replace(f"{folder}/", f"{package}/", 1) for name in expected}
    held = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert held == expected and {"soul/py.typed", "ditto/py.typed", "sft/py.typed"} <= held


@pytest.mark.network
def test_the_wheel_evaluates_from_an_empty_environment(wheel, tmp_path):
    uv, bin = Path(sys.executable).with_name("uv"), tmp_path / "venv" / "bin"
    subprocess.run([uv, "venv", "--quiet", "--python", sys.executable, bin.parent], check=True, timeout=60)
    install = [uv, "pip", "install", "--quiet", "--python", bin / "python", wheel]
    subprocess.run(install, check=True, timeout=600)
    known = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}

    def run(*words, code=0):
        done = subprocess.run(
            [bin / words[0], *words[1:]], env=known, cwd=tmp_path, capture_output=True, text=True, timeout=300
        )
        assert done.returncode == code, done.stderr
        return done.stderr if code else done.stdout

    assert run("soul", "--version").strip() == soul.__version__
    assert "soul.openenv needs openenv, which is not installed" in run("soul", "openenv", "--help", code=2)
    modules = sorted({module for module, _ in COMMANDS.values()} - {"soul.openenv"})
    run("python", "-c", f"import ditto, sft, {', '.join(modules)}")
    run("soul", "examples", "all", "--rows", "1", "--out", "data")
    endpoint = ["examples", "endpoint", str(bin / "soul")]
    printed = run("soul", *endpoint, "evaluate", "policy.model=m", "policy.api_key_env=OPENAI_API_KEY")
    assert "macro average, 27 sets" in printed
    (folder,) = (tmp_path / "outputs").glob("eval-m-*")
    assert {"report.html", "results.json", "table.md", "samples.parquet"} <= {file.name for file in folder.iterdir()}
