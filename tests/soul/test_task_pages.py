"""docs/tasks says what the code says."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_the_pages_are_those_that_the_code_makes():
    command = [sys.executable, str(ROOT / "docs" / "task_pages.py"), "--check"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, f"{done.stdout}{done.stderr}\nrun: python docs/task_pages.py"
