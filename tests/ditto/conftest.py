"""What all tests of `ditto` need: verl on its CPU platform, and a way to run Python in a process of its own."""

import os
import subprocess
import sys
from collections.abc import Callable

import pytest

# verl reads these while it is imported, so they are set before any test module is.
for name, value in {
    "VERL_PLATFORM": "cpu",
    "OMP_NUM_THREADS": "1",
    "HF_HUB_OFFLINE": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "RAY_USAGE_STATS_ENABLED": "0",
}.items():
    os.environ.setdefault(name, value)

RunPython = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def run_python() -> RunPython:
    """Run a piece of Python in a process of its own; environment variables by keyword, None removes one."""

    def run(code: str, *arguments: str, timeout: float = 120, **env: str | None) -> "subprocess.CompletedProcess[str]":
        variables = {key: value for key, value in {**os.environ, **env}.items() if value is not None}
        return subprocess.run(
            [sys.executable, "-c", code, *arguments], capture_output=True, text=True, timeout=timeout, env=variables
        )

    return run
