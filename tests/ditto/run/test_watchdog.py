"""A stuck phase or a dead worker ends the run with its cause and exit code 70; a healthy run is left alone."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

START = """
import sys, time
from pathlib import Path
from ditto.run.watchdog import Watchdog
folder = Path(sys.argv[1])
"""

RunPython = Callable[..., Any]


def ended(run_python: RunPython, folder: Path, code: str) -> tuple[int, dict[str, Any] | None, Any]:
    done = run_python(START + code, str(folder), timeout=30)
    failure = folder / "failure.json"
    return done.returncode, json.loads(failure.read_text()) if failure.exists() else None, done


def test_a_phase_past_its_limit_ends_the_process(run_python: RunPython, tmp_path: Path) -> None:
    code = """
watchdog = Watchdog(folder / "deep" / "run", limit_s=0.3, poll_s=0.05)
watchdog.start()
with watchdog.phase("weight sync"):
    time.sleep(20)
"""
    start = START + code
    done = run_python(start, str(tmp_path), timeout=30)
    assert done.returncode == 70
    failure = json.loads((tmp_path / "deep" / "run" / "failure.json").read_text())
    assert failure["phase"] == "weight sync"
    assert "run.phase_timeout_s" in failure["cause"] and "'weight sync'" in failure["cause"]
    assert "WATCHDOG" in done.stderr
    assert "time.sleep" in done.stderr or 'File "<string>"' in done.stderr  # the stack that waits


def test_a_disk_that_hangs_does_not_keep_the_process_alive(run_python: RunPython, tmp_path: Path) -> None:
    code = """
from ditto.run import watchdog
watchdog.WRITE_S = 0.2
Path.mkdir = lambda *_, **__: time.sleep(60)
dog = Watchdog(folder / "run", limit_s=0.3, poll_s=0.05)
dog.start()
with dog.phase("checkpoint"):
    time.sleep(60)
"""
    returncode, failure, done = ended(run_python, tmp_path, code)
    assert (returncode, failure) == (70, None) and "'checkpoint' took longer" in done.stderr


# the probe's code -> seconds that a phase may take, what the cause says
PROBES = {
    'asked.append(1); return "server 0 died" if len(asked) > 2 else None': (1000, "server 0 died"),
    'raise RuntimeError("the probe itself is broken")': (0.3, "took longer"),  # the thread goes on without it
}


@pytest.mark.parametrize("probe", PROBES)
def test_a_dead_worker_and_a_broken_probe(probe: str, run_python: RunPython, tmp_path: Path) -> None:
    limit, cause = PROBES[probe]
    code = f"""
asked = []
def probe():
    {probe}
watchdog = Watchdog(folder, limit_s={limit}, probe=probe, poll_s=0.05)
watchdog.start()
with watchdog.phase("rollout and update"):
    time.sleep(20)
"""
    returncode, failure, _ = ended(run_python, tmp_path, code)
    assert returncode == 70 and failure is not None
    assert failure["phase"] == "rollout and update" and cause in failure["cause"]


def test_a_healthy_run_is_left_alone(run_python: RunPython, tmp_path: Path) -> None:
    code = """
watchdog = Watchdog(folder, limit_s=0.5, probe=lambda: None, poll_s=0.02)
watchdog.start()
for _ in range(5):
    with watchdog.phase("rollout and update"):
        time.sleep(0.2)
time.sleep(0.8)  # outside of a phase there is no limit
watchdog.stop()
with watchdog.phase("after the end"):
    time.sleep(0.8)
print("done")
"""
    returncode, failure, done = ended(run_python, tmp_path, code)
    assert (returncode, failure) == (0, None), done.stderr
    assert done.stdout.strip() == "done"
