"""The base install stays light: `soul` and every task load without torch, Ray, verl, vLLM or transformers.

A subprocess, because other tests of this run may have imported them already.
"""

import json
import os
import pkgutil
import subprocess
import sys
from pathlib import Path

import soul

HEAVY = ("torch", "ray", "verl", "vllm", "transformers", "ditto", "tensordict", "datasets")
REPOSITORY = Path(__file__).resolve().parents[2]

PROBE = """
import importlib, json, sys
modules = json.loads(sys.argv[1])
for module in modules:
    importlib.import_module(module)
from soul import tasks
for name in tasks._CLASSES:
    tasks.load(name)
print(json.dumps(sorted({name.partition(".")[0] for name in sys.modules})))
"""


def loaded_after(modules):
    """The top-level packages in memory once a fresh interpreter has imported these modules and all tasks."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(REPOSITORY), os.environ.get("PYTHONPATH", "")])}
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
    modules = ["soul", *(found.name for found in pkgutil.walk_packages(soul.__path__, "soul."))]
    assert {"soul.session", "soul.judge", "soul.testing.server", "soul.tasks.hitom"} <= set(modules)
    loaded = loaded_after(modules)
    assert "openai" in loaded and "pydantic" in loaded  # the probe does look
    assert not loaded & set(HEAVY)


def test_soul_needs_no_test_library():
    loaded = loaded_after(["soul.testing"])
    assert not loaded & {"pytest", "hypothesis", "respx"}
