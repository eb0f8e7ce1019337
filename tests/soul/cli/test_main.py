"""The console command: it starts at once, finds each command, and says what it does not know."""

import importlib
import subprocess
import sys
from importlib.metadata import version

import pytest

import soul
from soul.cli.main import COMMANDS, main
from soul.errors import NotInstalled

HEAVY = ("pydantic", "openai", "pandas", "pyarrow", "rich", "numpy", "nltk")


def test_help_names_every_command_and_imports_nothing_slow() -> None:
    script = f"import sys; from soul.cli.main import main; main(['--help']); print(set({HEAVY}) & set(sys.modules))"
    printed = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert all(f"  {name} " in printed for name in COMMANDS) and printed.endswith("set()\n")


def test_every_command_is_a_module_that_can_be_started(capsys: pytest.CaptureFixture[str]) -> None:
    for name, (module, _) in COMMANDS.items():
        try:
            assert callable(importlib.import_module(module).main)
        except NotInstalled as error:  # OpenEnv's package needs an environment of its own
            assert main([*name.split(), "--help"]) == 2
            assert capsys.readouterr().err == f"soul: {error}\n"


def test_the_version_is_that_of_the_distribution(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.strip() == soul.__version__ == version("ditto-soul")
    with pytest.raises(AttributeError, match="no attribute 'versoin'"):
        getattr(soul, "versoin")  # noqa: B009
