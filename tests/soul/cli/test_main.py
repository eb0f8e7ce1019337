"""The console command: it starts at once, finds each command, and says what it does not know."""

from __future__ import annotations

import importlib
import signal
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path

import pytest

import ditto
import soul
from soul.cli.main import COMMANDS, main

HEAVY = ("pydantic", "openai", "pandas", "pyarrow", "rich", "numpy", "nltk")


def test_help_names_every_command_and_imports_nothing_slow() -> None:
    script = f"import sys; from soul.cli.main import main; main(['--help']); print(set({HEAVY}) & set(sys.modules))"
    printed = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert all(f"  {name} " in printed for name in COMMANDS) and printed.endswith("set()\n")


def test_every_command_is_a_module_that_can_be_started() -> None:
    for module, *_ in COMMANDS.values():
        assert callable(importlib.import_module(module).main)


def test_a_command_gets_its_words_and_gives_its_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tasks"]) == 0 and "hitom" in capsys.readouterr().out.split()
    assert main(["evaluate", "no_such_set", "policy.model=m"]) == 2
    assert "There is no evaluation set 'no_such_set'" in capsys.readouterr().err


def test_the_version_is_that_of_the_distribution(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.strip() == soul.__version__ == ditto.__version__ == version("ditto-soul")
    with pytest.raises(AttributeError, match="no attribute 'versoin'"):
        getattr(soul, "versoin")  # noqa: B009


def test_ctrl_c_ends_silently_while_modules_are_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pyarrow.py").write_text("import time\nopen('importing', 'w').close()\ntime.sleep(600)\n")
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{Path(soul.__file__).parents[1]}")
    command = [sys.executable, "-m", "soul", "evaluate", "hitom"]
    process = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    end = time.monotonic() + 60
    while not (tmp_path / "importing").exists():
        assert time.monotonic() < end
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=60)[1] == "" and process.returncode == -signal.SIGINT  # 130 in a shell
