"""Every command has --help, which ends with 0 and shows how the command is called."""

from __future__ import annotations

import importlib
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from soul.cli.main import COMMANDS
from tests.mistakes.print_help import words_of

ROOT = Path(__file__).parents[2]
SCRIPTS = (
    *("run_rl.sh", "run_sft.sh", "recipe/ditto/run_rl.sh", "recipe/ditto/submit.sh", "recipe/ditto/eval.sh"),
    *(
        "recipe/ditto/distill.sh",
        "recipe/ditto/distill_reverse.sh",
        "recipe/demo/run.sh",
        "scripts/env",
        "scripts/test",
    ),
)
SLOW = ("recipe/", "docs/", "benchmarks/")  # torch, transformers, matplotlib


def commands() -> list[str]:
    """Every module that can be started."""
    files = (
        file
        for folder in ("agents", "data", "sft", "recipe", "benchmarks", "docs")
        for file in (ROOT / folder).rglob("*.py")
    )
    started = (file for file in files if re.search(r'^if __name__ == "__main__":', file.read_text(), re.MULTILINE))
    return sorted({str(file.relative_to(ROOT)) for file in started})


def module_of(file: str) -> str:
    return file.removeprefix("agents/").removesuffix(".py").replace("/", ".")


def called_as(module: str) -> str:
    """What the user types: those of `soul` are subcommands of the console command."""
    for command, (ours, *_) in COMMANDS.items():
        if module == ours:
            return f"soul {command}"
    module = "soul" if module == "soul.__main__" else module.removesuffix(".__main__")
    return f"python -m {module.replace('data.intents', 'data.userllm intents')}"


@pytest.mark.parametrize("file", [file for file in commands() if not file.startswith(SLOW)])
def test_a_command_has_help(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    module = module_of(file)
    if module == "soul.__main__":
        assert importlib.import_module(module).main(["--help"]) == 0
    else:
        with pytest.raises(SystemExit, match="0"):
            importlib.import_module(module).main(["--help"])
    printed = capsys.readouterr().out
    name = "soul" if module == "soul.__main__" else called_as(module)
    assert printed.startswith(f"usage: {name} ")
    if module.startswith("soul."):
        example = rf"^ *(?:\w+=\S+ )*{name} ?[^`]*$"  # on a line of its own
        assert re.search(example, printed.partition("\n\n")[2], re.MULTILINE), "no example"


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_launcher_has_help(script: str, tmp_path: Path) -> None:
    done = subprocess.run(
        ["bash", ROOT / script, "--help"], capture_output=True, text=True, check=True, cwd=tmp_path, timeout=60
    )
    assert script in done.stdout.replace("run_rl.sh demo", script) and not done.stderr


SLOW_COMMANDS = [file for file in commands() if file.startswith(SLOW)]


@pytest.fixture(scope="module")
def slow_help() -> dict[str, tuple[int, str]]:
    """File -> exit code and printed text of each slow command."""
    command = [sys.executable, "-W", "ignore", "-m", "tests.mistakes.print_help", *SLOW_COMMANDS]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return {file: tuple(ended) for file, ended in json.loads(done.stdout.splitlines()[-1]).items()}


@pytest.mark.e2e
@pytest.mark.parametrize("file", SLOW_COMMANDS)
def test_a_slow_command_has_help(file: str, slow_help: dict[str, tuple[int, str]]) -> None:
    code, printed = slow_help[file]
    assert code == 0, printed
    assert printed.startswith(f"usage: python {' '.join(words_of(file))} "), printed
