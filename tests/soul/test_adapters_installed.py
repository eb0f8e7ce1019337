"""The adapters whose frameworks cannot share an environment with vLLM: their tests, in environments of their own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from soul.export import main
from tests.soul.pages.invented_run import training

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.network
@pytest.mark.timeout(1800)  # two minutes on a quiet machine
@pytest.mark.parametrize("extra", ["verifiers", "openenv"])
def test_in_an_environment_of_its_own(extra, tmp_path):
    uv, python = Path(sys.executable).with_name("uv"), tmp_path / "venv" / "bin" / "python"
    subprocess.run([uv, "venv", "--quiet", "--python", sys.executable, tmp_path / "venv"], check=True, timeout=60)
    packages = [f"{ROOT}[{extra}]", "pytest", "pytest-timeout"]
    install = [uv, "pip", "install", "--quiet", "--python", python, *packages]
    subprocess.run(install, check=True, timeout=600)
    command = [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "", f"tests/soul/test_{extra}.py"]
    known = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(command, cwd=ROOT, env=known, capture_output=True, text=True, timeout=1500, check=False)
    assert done.returncode == 0 and " passed" in done.stdout and "skipped" not in done.stdout, done.stdout[-5000:]


@pytest.mark.network
def test_harbors_own_validator_accepts_every_trajectory(tmp_path):
    main([str(training(tmp_path / "run", steps=1)), "--to", "atif", "--out", str(tmp_path / "out")])
    files = [str(file) for file in (tmp_path / "out").rglob("*.json")]
    alone = ["--no-deps", "--python-version", "3.12", "--target", tmp_path / "harbor"]  # its models need pydantic alone
    install = [Path(sys.executable).with_name("uv"), "pip", "install", "--quiet", *alone, "harbor==0.26.0"]
    subprocess.run(install, check=True, timeout=300)
    code = "import sys; from harbor.utils.trajectory_validator import validate_trajectory as valid;"
    code += "print(sum(map(valid, sys.argv[1:])))"
    valid = subprocess.check_output([sys.executable, "-c", code, *files], env={"PYTHONPATH": str(tmp_path / "harbor")})
    assert int(valid) == len(files) > 100
