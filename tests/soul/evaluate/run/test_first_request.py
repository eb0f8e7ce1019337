"""An evaluation imports no package that only some verdicts need before its first request."""

import json
import subprocess
import sys

from soul.examples.__main__ import write
from soul.suites import soul_v1
from soul.testing.server import refused_url

# Prints the modules at the first connection over TCP, and ends.
PROGRAM = """
import json, os, sys
def at_the_first_request(event, arguments):
    if event == "socket.connect" and isinstance(arguments[1], tuple):
        print(json.dumps(sorted(sys.modules)), flush=True)
        os._exit(0)
sys.addaudithook(at_the_first_request)
from soul.evaluate.__main__ import main
main(sys.argv[1:])
"""


def test_a_multiple_choice_set_imports_neither_nltk_nor_scipy_nor_pandas_before_its_first_request(tmp_path):
    """They took more than half of 2.5 CPU seconds."""
    write(["hitom"], 2, tmp_path / "sim_eval_data" / f"{soul_v1.SETS['hitom'].file}.parquet")
    words = ["policy.model=m", f"policy.base_url={refused_url()}", "policy.api_key_env=none"]
    command = [sys.executable, "-c", PROGRAM, "hitom", *words, "--data", str(tmp_path), "--out", str(tmp_path / "out")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    modules = set(json.loads(done.stdout.splitlines()[-1]))
    assert "soul.tasks.hitom" in modules, done.stderr
    assert not modules & {"nltk", "scipy", "pandas", "regex", "sklearn", "transformers", "torch", "soul.tasks.coser"}
