"""Measure the CPU time that each process of a training spends on imports, and what takes it, where none is forked.

    python -m benchmarks.startup_imports

`benchmarks.startup` measures whole processes; this looks into their imports. Each entry module is imported in a fresh
interpreter. For the packages below, the table shows the CPU seconds of their first import, with everything that they
import in turn, so the rows overlap (tensordict imports torch). A package that came in before its own `import`
statement, as part of another one, has no number.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence

from benchmarks.judge import console, new_table, print_load
from soul.cli.error_border import Parser, reports_errors

# process -> the module that it imports first
ENTRIES = {
    "trainer": "ditto.trainer_modes",
    "actor": "ditto.verl_hooks.actor_worker",
    "agent loop": "ditto.rollout.agent_loop",
    "vLLM's server": "verl.workers.rollout.vllm_rollout.vllm_async_server",
    "queue": "transfer_queue",  # two processes
    "judge": "ditto.judging.actor",
}
PACKAGES = (
    "torch",
    "torch._dynamo",
    "tensordict",
    "transformers",
    "datasets",
    "vllm",
    "ray",
    "openai",
    "nltk.tokenize",
)

_PROBE = """
import builtins, importlib, json, sys, time
entry, packages = sys.argv[1], set(sys.argv[2:])
plain, seconds = builtins.__import__, {}
def timed(name, globals=None, locals=None, fromlist=(), level=0):
    if level or name not in packages or name in seconds or name in sys.modules:
        return plain(name, globals, locals, fromlist, level)
    seconds[name], start = 0.0, time.process_time()
    try:
        return plain(name, globals, locals, fromlist, level)
    finally:
        seconds[name] = time.process_time() - start
builtins.__import__, start = timed, time.process_time()
importlib.import_module(entry)
print(json.dumps({**seconds, "all": time.process_time() - start}))
"""


def import_seconds(entry: str) -> dict[str, float]:
    """CPU seconds of the import of a module ("all"), and of the packages that it imports."""
    command = [sys.executable, "-W", "ignore", "-c", _PROBE, entry, *PACKAGES]
    printed = subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout
    return dict(json.loads(printed.splitlines()[-1]))


@reports_errors
def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, and print a table."""
    Parser(prog="python -m benchmarks.startup_imports", description=__doc__).parse_args(arguments)
    table = new_table("CPU seconds of imports", "package", *ENTRIES)
    seconds = [import_seconds(entry) for entry in ENTRIES.values()]
    for name in ("all", *PACKAGES):
        table.add_row(name, *(f"{each[name]:.1f}" if name in each else "" for each in seconds))
    console.print(table)
    print_load()


if __name__ == "__main__":
    main()
