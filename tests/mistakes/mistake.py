"""A user's mistake as a row of a table: the command line, and what the user must read.

    MISTAKES = [Mistake("no rows", ["--limit", "0"], expects=["--limit", "1 or more"]), ...]

    @pytest.mark.parametrize("mistake", MISTAKES, ids=str)
    def test_a_mistake_is_one_paragraph(mistake, assert_stops):
        assert_stops(main, mistake)

Words and variables may hold `{tmp}` and any other name of `places`; the runners replace them by paths.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

SECRET = "sk-mistake-5d41402abc4b2a76"  # put it where a user might put a key; no output may repeat it
LONGEST = 2000  # characters of an error; argparse prints the usage above it
ANOTHER_COMMANDS = ("OPENAI_", "JUDGE_", "PARTNER_", "EXPERIMENT_", "WANDB_")  # beginnings of variables that are unset


@dataclass(frozen=True)
class Mistake:
    """One mistake.

    Attributes:
        name: what the user did wrong; the test's id.
        words: the command line after the program.
        environment: variables beside those of the test.
        expects: each of these is part of what the user reads: the option or file, and what to do.
        exit_code: 2 where the command or its input is wrong.
    """

    name: str
    words: Sequence[str] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    expects: Sequence[str] = ()
    exit_code: int = 2

    def __str__(self) -> str:
        return self.name

    def at(self, places: Mapping[str, Path | str]) -> Mistake:
        """The same mistake, with `{name}` replaced by the place of that name."""

        def put(text: str) -> str:
            for name, place in places.items():
                text = text.replace(f"{{{name}}}", str(place))
            return text

        words = [put(word) for word in self.words]
        environment = {name: put(value) for name, value in self.environment.items()}
        return Mistake(self.name, words, environment, [put(text) for text in self.expects], self.exit_code)


Main = Callable[[list[str]], Any]
AssertStops = Callable[[Main, Mistake], None]  # the fixtures of conftest.py
AssertRefused = Callable[[str, Mistake], None]


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    code: int
    out: str
    err: str


def run_in_process(
    main: Main,
    mistake: Mistake,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    places: Mapping[str, Path | str] | None = None,
) -> Ended:
    """Call a command's `main` with the mistake's words; argparse ends it with SystemExit."""
    mistake = mistake.at(places or {})
    for name in list(os.environ):
        if name.startswith(ANOTHER_COMMANDS):
            monkeypatch.delenv(name)
    for name, value in mistake.environment.items():
        monkeypatch.setenv(name, value)
    capsys.readouterr()
    try:
        code = main(list(mistake.words)) or 0
    except SystemExit as end:
        # Python prints a text that is no number, and ends with 1.
        code = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
    printed = capsys.readouterr()
    return Ended(code, printed.out, printed.err)


def error_of(main: Main, words: Sequence[str], capsys: pytest.CaptureFixture[str]) -> str:
    """What a command prints on stderr that refuses its input with exit code 2."""
    capsys.readouterr()
    assert main(list(words)) == 2
    return capsys.readouterr().err


def run_as_process(
    command: Sequence[str],
    mistake: Mistake,
    places: Mapping[str, Path | str] | None = None,
    folder: Path | None = None,
    timeout_s: float = 120,
) -> Ended:
    """Run a command (`["bash", "run_rl.sh"]`) with the mistake's words as a process of its own.

    Args:
        folder: where it runs; None: here.
        timeout_s: a mistake must be seen long before.
    """
    mistake = mistake.at(places or {})
    ours = {name: value for name, value in os.environ.items() if not name.startswith(ANOTHER_COMMANDS)}
    done = subprocess.run(
        [*command, *mistake.words],
        env={**ours, **mistake.environment},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    return Ended(done.returncode, done.stdout, done.stderr)


def assert_one_paragraph(ended: Ended, mistake: Mistake, places: Mapping[str, Path | str] | None = None) -> None:
    """The user reads one paragraph for each thing that is wrong, the exit code is right, and no key is repeated."""
    printed = ended.out + ended.err
    assert "Traceback" not in printed, printed
    assert SECRET not in printed, "a key is repeated"
    assert ended.code == mistake.exit_code, f"exit code {ended.code}, {mistake.exit_code} expected\n{printed}"
    listed = ended.err.strip().partition(" things are wrong.\n\n")[2]
    paragraphs = listed.split("\n\n") if listed else [ended.err.strip().rpartition("\n\n")[2]]
    assert all(0 < len(each) <= LONGEST for each in paragraphs), ended.err or "nothing was said on stderr"
    told = "\n\n".join(paragraphs)
    assert "Unexpected " not in told, told
    for text in mistake.at(places or {}).expects:
        assert text in told, f"{text!r} is not in:\n{told}"
