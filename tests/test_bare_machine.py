"""The first commands on a GPU machine need torch, transformers and peft, and nothing else of ours or of the stack."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
# Hide all that `pip install torch transformers peft pytest` does not bring.
BARE = """
import runpy, sys
from importlib.machinery import PathFinder
MISSING = set("datasets hydra hypothesis omegaconf openai pandas pyarrow pydantic ray sft soul tensordict "
    "transfer_queue verl vllm".split())
found = PathFinder.find_spec
def find_spec(cls, name, path=None, target=None):
    return None if name.partition(".")[0] in MISSING else found(name, path, target)
PathFinder.find_spec = classmethod(find_spec)
sys.path.insert(0, ".")
del sys.argv[0]
runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
"""


@pytest.mark.parametrize(
    "words",
    [
        ["benchmarks.gpu", "--parts", "attention", "training"],
        [
            *("pytest", "-q", "-p", "no:cacheprovider", "-k", "equation or alone_it_is_exact"),
            *("tests/ditto/model/test_attention.py", "tests/ditto/model/test_chunked_head.py"),
        ],
    ],
    ids=lambda words: words[0],
)
def test_a_bare_machine_can_run_it(words: list[str]) -> None:
    environment = {
        **os.environ,
        "PYTHONPATH": "verl",
        "CUDA_VISIBLE_DEVICES": "",
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
    }
    command = [sys.executable, "-c", BARE, *words]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
