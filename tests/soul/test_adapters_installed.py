"""The adapters whose frameworks cannot share an environment with vLLM: their tests, in environments of their own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.network
@pytest.mark.timeout(1800)  # two minutes on a quiet machine
@pytest.mark.parametrize("extra", ["verifiers", "openenv"])
def test_in_an_environment_of_its_own(extra, tmp_path):
    uv, python = Path(sys.executable).with_name("uv"), tmp_path / "venv" / "bin" / "python"
    subprocess.run([uv, "venv", "--quiet", "--python", sys.executable, tmp_path / "venv"], check=True, timeout=60)
    packages = [f"{ROOT}[{extra}]", "pytest", "pytest-timeout"]
    install = [uv, "pip", "install", "--quiet", "--compile-bytecode", "--python", python, *packages]
    subprocess.run(install, check=True, timeout=600)
    command = [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "", f"tests/soul/test_{extra}.py"]
    known = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(command, cwd=ROOT, env=known, capture_output=True, text=True, timeout=1500, check=False)
    assert done.returncode == 0 and " passed" in done.stdout and "skipped" not in done.stdout, done.stdout[-5000:]
