"""Programs that run in turns, in processes of their own, and the tables of their times: shared by the benchmarks."""

import os
import statistics
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from soul.errors import RunFailed

ROOT = Path(__file__).resolve().parents[1]
TIME_LIMIT_S = 1800
console = Console(width=max(110, Console().width))


def in_turns(names: Iterable[str], rounds: int) -> Iterator[tuple[int, str]]:
    """Yield the number of the round, from 0, and a name; every second round in reverse order."""
    names = list(names)
    for number in range(rounds):
        for name in names[:: -1 if number % 2 else 1]:
            yield number, name


def output_of(command: Sequence[str], variables: Mapping[str, str | None] | None = None) -> str:
    """Run a program and return what it prints.

    Args:
        variables: of its environment, beside those of this process; None removes one.

    Raises:
        RunFailed: it failed, or took longer than TIME_LIMIT_S.
    """
    changed = {**os.environ, "TOKENIZERS_PARALLELISM": "false", "HF_HUB_OFFLINE": "1", **(variables or {})}
    environment = {name: value for name, value in changed.items() if value is not None}
    what = " ".join(command[:4])
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, cwd=ROOT, timeout=TIME_LIMIT_S)
    except subprocess.TimeoutExpired:
        raise RunFailed(f"{what} did not end within {TIME_LIMIT_S} s. Give it less to do.") from None
    if done.returncode:
        raise RunFailed(f"{what} failed:\n{done.stderr[-3000:]}")
    return done.stdout


def new_table(title: str, first: str, *columns: str) -> Table:
    """A table whose first column is text and whose others are numbers."""
    table = Table(title=title)
    table.add_column(first)
    for column in columns:
        table.add_column(column, justify="right")
    return table


def spread(values: Sequence[float], digits: int) -> str:
    """Median and quartiles."""
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive") if len(values) > 1 else [*values] * 3
    return f"{middle:,.{digits}f} ({low:,.{digits}f} to {high:,.{digits}f})"


def print_load() -> None:
    """Print how busy the machine was, this benchmark included."""
    console.print(f"Load average of the last minutes: {os.getloadavg()[1]:.1f} on {os.cpu_count()} cores.")
