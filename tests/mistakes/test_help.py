"""Every command has --help, which ends with 0 and shows how the command is called."""

import importlib
import re
import subprocess
from pathlib import Path

import pytest

from soul.cli.main import COMMANDS
from soul.errors import NotInstalled

ROOT = Path(__file__).parents[2]
SCRIPTS = (
    *("run_rl.sh", "run_sft.sh", "recipe/ditto/run_rl.sh", "recipe/ditto/submit.sh", "recipe/ditto/eval.sh"),
    *("recipe/ditto/distill.sh", "recipe/ditto/distill_reverse.sh", "recipe/demo/run.sh"),
    *("scripts/env", "scripts/test"),
)


def commands() -> list[str]:
    """Every command of `soul`, and every module of the packages without torch, and of sft, that can be started."""
    files = (file for folder in ("agents", "data", "sft") for file in (ROOT / folder).rglob("*.py"))
    started = (file for file in files if re.search(r'^if __name__ == "__main__":', file.read_text(), re.MULTILINE))
    names = (str(file.relative_to(ROOT)).removeprefix("agents/").removesuffix(".py") for file in started)
    return sorted({*(name.replace("/", ".") for name in names), *(module for module, _ in COMMANDS.values())})


def called_as(module: str) -> str:
    """The words that a user types: those of `soul` are subcommands of the console command."""
    for command, (ours, *_) in COMMANDS.items():
        if module == ours:
            return f"soul {command}"
    module = module.removesuffix(".__main__")
    return "soul" if module == "soul" else f"python -m {module.replace('data.intents', 'data.userllm intents')}"


@pytest.mark.parametrize("module", commands())
def test_a_command_has_help(module: str, capsys: pytest.CaptureFixture[str]) -> None:
    name = called_as(module)
    try:
        program = importlib.import_module(module)
        code = getattr(program, "BUILDER", program).main(["--help"])
    except SystemExit as end:
        code = end.code
    except NotInstalled as error:
        pytest.skip(str(error))
    printed = capsys.readouterr().out
    assert code == 0 and printed.startswith(f"usage: {name} ")
    if module.startswith("soul."):
        example = rf"^ *(?:\w+=\S+ )*{name} ?[^`]*$"  # on a line of its own
        assert re.search(example, printed.partition("\n\n")[2], re.MULTILINE), "no example"


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_launcher_has_help(script: str, tmp_path: Path) -> None:
    done = subprocess.run(
        ["bash", ROOT / script, "--help"], capture_output=True, text=True, check=True, cwd=tmp_path, timeout=60
    )
    assert script in done.stdout.replace("run_rl.sh demo", script) and not done.stderr
