"""Types of command-line options: numbers in their range, and files and folders that can be used.

If a value is wrong, argparse prints the option's name and the message, and the command exits with code 2 before any
work begins. String defaults, such as those from an environment variable, are checked too.
"""

import math
from argparse import ArgumentTypeError
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from soul.files.disk_writes import limit_reached, probe

Number = TypeVar("Number", int, float)


def _number(kind: Callable[[str], Number], expected: str, allowed: Callable[[Number], bool]) -> Callable[[str], Number]:
    """The type of an option that takes a finite number; `expected` completes its error message."""

    def parsed(text: str) -> Number:
        try:
            number = kind(text)
        except ValueError:
            raise ArgumentTypeError(f"{text!r}: expected {expected}") from None
        if not math.isfinite(number) or not allowed(number):
            raise ArgumentTypeError(f"{text}: expected {expected}")
        return number

    return parsed


def is_setting(word: str) -> bool:
    """Check that a word is KEY=VALUE. A path that exists is none, even with "=" in it (outputs/lr=1e-4)."""
    return "=" in word and not Path(word).exists()


positive_int = _number(int, "a whole number, 1 or more", lambda number: number >= 1)
non_negative_int = _number(int, "a whole number, 0 or more", lambda number: number >= 0)
port = _number(int, "a port, 0 to 65535", lambda number: 0 <= number <= 65535)  # 0: any free port
positive_float = _number(float, "a number above 0", lambda number: number > 0)
non_negative_float = _number(float, "a number, 0 or more", lambda number: number >= 0)
share = _number(float, "a number from 0 to below 1", lambda number: 0 <= number < 1)
positive_share = _number(float, "a number above 0, at most 1", lambda number: 0 < number <= 1)
probability = _number(float, "a number from 0 to 1", lambda number: 0 <= number <= 1)


def one_of(*words: str) -> Callable[[str], str]:
    """One of these words. (argparse's `choices` does not check a default from the environment.)"""

    def chosen(text: str) -> str:
        if text not in words:
            raise ArgumentTypeError(f"{text!r}: expected {' or '.join(words)}")
        return text

    return chosen


def existing_file(text: str) -> Path:
    """A file that can be read."""
    path = _file(text)
    try:
        path.open("rb").close()
    except OSError as error:
        raise ArgumentTypeError(f"{path}: {error.strerror}") from None
    return path


def existing_folder(text: str) -> Path:
    """A folder that exists."""
    path = _path(text)
    if not path.is_dir():
        problem = f"{path} is a file; pass the path of a folder" if path.exists() else f"there is no folder {path}"
        raise ArgumentTypeError(problem)
    return path


def output_file(text: str) -> Path:
    """A file that you can write; its folder need not exist yet. Nothing is created."""
    path = _file(text)
    try:
        if path.is_file():
            path.open("ab").close()
        elif not path.exists():  # /dev/stdout and pipes need no check
            output_folder(str(path.parent))
    except OSError as error:
        raise ArgumentTypeError(f"{path}: {error.strerror}; pass the path of another file") from None
    return path


def output_folder(text: str) -> Path:
    """A folder that you can write to; it need not exist yet. Nothing is created."""
    path = _path(text)
    try:
        probe(path)
    except OSError as error:
        if limit := limit_reached(error):
            raise limit from None
        raise ArgumentTypeError(f"cannot write to {path}: {error.strerror}; pass the path of another folder") from None
    return path


def _file(text: str) -> Path:
    path = _path(text)
    if path.is_dir():
        raise ArgumentTypeError(f"{path} is a folder; pass the path of a file")
    return path


def _path(text: str) -> Path:
    if not text or "\0" in text:
        raise ArgumentTypeError(f"{text!r} is not a path")
    return Path(text)
