"""recipe/ditto/eval.sh local: which interpreter and which words. The evaluation itself is a stand-in."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
# It answers what scripts/env asks an interpreter (has it the training stack?), and says how it was called.
STAND_IN = """#!/usr/bin/env bash
case $1 in -) exit 0 ;; -c) echo "$0"; exit ;; esac
printf '%s\\n' "$0" "$@"
"""


def told(folder: Path, *words: str, **variables: str) -> list[str]:
    """What eval.sh calls in a checkout whose environment for CPUs is complete."""
    (folder / "recipe" / "ditto").mkdir(parents=True)
    shutil.copy(ROOT / "recipe" / "ditto" / "eval.sh", folder / "recipe" / "ditto")
    shutil.copytree(ROOT / "scripts", folder / "scripts")
    made = folder / ".venv-cpu" / "bin" / "python"
    made.parent.mkdir(parents=True)
    made.write_text(STAND_IN)
    made.chmod(0o755)
    (folder / "plain").write_text("#!/bin/sh\nexit 1\n")
    (folder / "plain").chmod(0o755)
    plain = {"PATH": os.environ["PATH"], "PLATFORM": "cpu", "PYTHON": str(folder / "plain")}
    command = ["bash", str(folder / "recipe" / "ditto" / "eval.sh"), "local", *words]
    done = subprocess.run(command, env={**plain, **variables}, capture_output=True, text=True, timeout=180)
    assert done.returncode == 0, done.stderr
    return done.stdout.replace(f"{folder}/", "").splitlines()


def test_an_interpreter_without_a_training_stack_is_what_the_environment_is_made_from(tmp_path: Path) -> None:
    assert told(tmp_path)[:5] == [".venv-cpu/bin/python", "-m", "soul", "evaluate", "local"]


def test_sets_may_stand_on_several_lines(tmp_path: Path) -> None:
    assert told(tmp_path, "x=y", TASKS="hitom\nsotopia,coser\n")[5:] == ["hitom", "sotopia", "coser", "x=y"]


@pytest.mark.parametrize(("text", "dry"), [("false", False), ("true", True)])
def test_a_dry_run(tmp_path: Path, text: str, dry: bool) -> None:
    assert ("--dry-run" in told(tmp_path, DRY_RUN=text)) == dry
