"""A user's mistake as a row of a table: the command line, and what the user must read.

Words and variables may hold `{tmp}` and any other name of `places`; the runners replace them by paths.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

SECRET = "sk-mistake-5d41402abc4b2a76"  # put it where a user might put a key; no output may repeat it
LONGEST = 2000  # characters of an error; argparse prints the usage above it
ANOTHER_COMMANDS = ("OPENAI_", "JUDGE_", "PARTNER_", "EXPERIMENT_", "WANDB_")  # beginnings of variables that are unset
Places = Mapping[str, Path | str]
Main = Callable[[list[str]], Any]


@dataclass(frozen=True)
class Mistake:
    """One mistake.

    Attributes:
        words: the command line after the program.
        expects: each of these is part of what the user reads: the option or file, and what to do.
        environment: variables beside those of the test.
    """

    words: Sequence[str] = ()
    expects: Sequence[str] = ()
    environment: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        named = " ".join([*(f"{name}={value}" for name, value in self.environment.items()), *self.words])
        return (named or "nothing").replace(SECRET, "SECRET")[-80:]

    def at(self, places: Places) -> Mistake:
        """The same mistake, with `{name}` replaced by the place of that name."""

        def put(text: str) -> str:
            for name, place in places.items():
                text = text.replace(f"{{{name}}}", str(place))
            return text

        variables = {name: put(value) for name, value in self.environment.items()}
        return Mistake([put(word) for word in self.words], [put(text) for text in self.expects], variables)

    def after(self, *words: str, **environment: str) -> Mistake:
        """The same mistake in a longer command line."""
        return replace(self, words=[*words, *self.words], environment={**environment, **self.environment})


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    code: int
    out: str
    err: str


def run_in_process(
    main: Main, mistake: Mistake, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Ended:
    """Call a command's `main` with the mistake's words; argparse ends it with SystemExit."""
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


def run_as_process(command: Sequence[str], mistake: Mistake, folder: Path | None = None) -> Ended:
    """Run a command (`["bash", "run_rl.sh"]`) with the mistake's words as a process of its own, in a folder."""
    ours = {name: value for name, value in os.environ.items() if not name.startswith(ANOTHER_COMMANDS)}
    done = subprocess.run(
        [*command, *mistake.words],
        env={**ours, **mistake.environment},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    return Ended(done.returncode, done.stdout, done.stderr)


def assert_one_paragraph(ended: Ended, mistake: Mistake) -> None:
    """The user reads one paragraph for each thing that is wrong, the exit code is 2, and no key is repeated."""
    printed = ended.out + ended.err
    assert "Traceback" not in printed, printed
    assert SECRET not in printed, "a key is repeated"
    assert ended.code == 2, printed
    listed = ended.err.strip().partition(" things are wrong.\n\n")[2]
    paragraphs = listed.split("\n\n") if listed else [ended.err.strip().rpartition("\n\n")[2]]
    assert all(0 < len(each) <= LONGEST for each in paragraphs), ended.err or "nothing was said on stderr"
    told = "\n\n".join(paragraphs)
    assert "Unexpected " not in told, told
    for text in mistake.expects:
        assert text in told, f"{text!r} is not in:\n{told}"
