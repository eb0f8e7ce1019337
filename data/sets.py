"""Build the files of all evaluation sets whose sources you have.

    python -m data.sets SOURCES --out data        ->  data/sim_eval_data/hitom_val.parquet, ...

SOURCES holds a folder for each benchmark (hitom/, fantom/, ...) with the files as their authors publish them; see
`data.sources` for their names. A table says of each of the 27 sets how many rows it has, what was left out and why, or
which files to put where. Exit code 1 where a source that is there could not be built: only its own set is skipped.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from rich.console import Console
from rich.table import Table

from agents import tasks
from data.built import Built
from data.sources import BUILDS, Build, Found, in_words

_SHOWN = 6  # unused files of a folder that are named; a clone of a repository has hundreds


@dataclass(frozen=True)
class Outcome:
    """What became of a set: built, or why not."""

    name: str
    state: Literal["built", "no source", "failed"]
    rows: int = 0
    remarks: tuple[str, ...] = ()
    read: tuple[Path, ...] = ()


def build_set(name: str, root: Path, out: Path) -> Outcome:
    """Write the file of one evaluation set, if its source is there."""
    build = BUILDS.get(name)
    if build is None:
        remark = f"no builder: write {out} yourself; docs/tasks/{name}.md names its fields"
        return Outcome(name, "no source", remarks=(remark,))
    found = build.find(root)
    if found.form is None:
        return _incomplete(name, build, found)
    print(f"building {name} from {found.folder}", file=sys.stderr)
    module = importlib.import_module(f"data.{build.builder}")
    read = (*found.files, *found.beside)
    try:
        built: Built = module.build(build.arguments(found, out))
    except (OSError, ValueError) as error:
        return Outcome(name, "failed", remarks=(_one_line(error),), read=read)
    except Exception as error:  # noqa: BLE001 - a source in a shape that its builder does not expect costs its own set only
        where = f"python -m data.{build.builder} {' '.join(build.arguments(found, out))} shows where"
        return Outcome(name, "failed", remarks=(f"{type(error).__name__}: {_one_line(error)} ({where})",), read=read)
    left_out = [f"left out {count}: {reason}" for reason, count in built.left_out.items() if count]
    stands_in = [found.form.stands_in] if found.form.stands_in else []
    return Outcome(name, "built", built.rows, (*stands_in, *left_out, *built.notes), read)


def _incomplete(name: str, build: Build, found: Found) -> Outcome:
    if found.files:
        remark = f"put {in_words(found.missing)} into {found.folder} ({build.where})"
        return Outcome(name, "failed", remarks=(f"the source is incomplete: {remark}",), read=found.files)
    return Outcome(
        name, "no source", remarks=(f"put {in_words(build.forms[0].files)} into {found.folder} ({build.where})",)
    )


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())


def unused(root: Path, outcomes: Sequence[Outcome]) -> Iterator[str]:
    """A line for each folder of SOURCES with files that no set reads, and why where that is known."""
    read = {path for outcome in outcomes for path in outcome.read}
    builds: dict[str, Build] = {folder: build for build in BUILDS.values() for folder in build.folders}
    for folder in sorted(path for path in root.iterdir() if path.is_dir()):
        rest = sorted(path for path in folder.rglob("*") if path.is_file() and path not in read)
        build = builds.get(folder.name)
        if build is None and rest:
            yield f"{folder.name}: no set has a folder of this name ({', '.join(sorted(builds))} have)"
        elif build is not None and rest:
            yield f"{folder.name}: {'; '.join(_by_reason(folder, rest, build))}"


def _by_reason(folder: Path, rest: Sequence[Path], build: Build) -> Iterator[str]:
    reasons: dict[str, list[str]] = {}
    for path in (path.relative_to(folder) for path in rest):
        reasons.setdefault(build.why_aside(path) or "", []).append(str(path))
    for reason, names in reasons.items():
        more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
        yield f"{', '.join(names[:_SHOWN])}{more}{f' ({reason})' if reason else ''}"


def table(outcomes: Sequence[Outcome]) -> Table:
    """The outcomes as people read them."""
    view = Table(title="Evaluation sets", title_justify="left")
    view.add_column("set", no_wrap=True)
    view.add_column("state", no_wrap=True)
    view.add_column("rows", justify="right", no_wrap=True)
    view.add_column("left out and why, or what to put where", overflow="fold")
    for outcome in outcomes:
        rows = f"{outcome.rows:,}" if outcome.state == "built" else "-"
        view.add_row(outcome.name, outcome.state, rows, "\n".join(outcome.remarks))
    return view


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit code: 0, or 1 where a source that is there could not be built."""
    parser = argparse.ArgumentParser(prog="python -m data.sets", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("sources", type=Path, metavar="SOURCES", help="holds a folder for each benchmark")
    parser.add_argument("--out", type=Path, default=Path("data"), help="DATA_DIR; the files go to its sim_eval_data/")
    given = parser.parse_args(arguments)
    if not given.sources.is_dir():
        parser.error(f"there is no folder {given.sources}; name the folder that holds hitom/, fantom/, ...")
    files = {name: given.out / "sim_eval_data" / f"{part.file}.parquet" for name, part in tasks.SETS.items()}
    outcomes = [build_set(name, given.sources, out) for name, out in files.items()]
    outcomes = [_with_older_file(outcome, files[outcome.name]) for outcome in outcomes]
    console = Console(width=max(120, Console().width), markup=False, highlight=False)
    console.print(table(outcomes))
    if lines := list(unused(given.sources, outcomes)):
        console.print("Not used:", *lines, sep="\n  ")
    states = [outcome.state for outcome in outcomes]
    console.print(", ".join(f"{states.count(state)} {state}" for state in ("built", "no source", "failed")))
    return 1 if "failed" in states else 0


def _with_older_file(outcome: Outcome, out: Path) -> Outcome:
    """An earlier build's file stays; evaluation would take it without a word."""
    if outcome.state == "built" or not out.exists():
        return outcome
    return replace(outcome, remarks=(*outcome.remarks, f"an older {out} is still there"))


if __name__ == "__main__":
    sys.exit(main())
