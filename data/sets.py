"""Build the files of all evaluation sets whose sources you have.

    python -m data.sets SOURCES --out data        ->  data/sim_eval_data/hitom_val.parquet, ...

SOURCES holds a folder for each benchmark (hitom/, fantom/, ...) with the files as their authors publish them; see
`data.sources` for their names. A table lists the suite's 27 sets and ParaToMi's paraphrased test: how many rows each
has, what was left out and why, or which files to put where. If a set fails, the others are still built, and the exit
code is 1. It is 2 if SOURCES holds no source at all.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from rich.console import Console
from rich.table import Table

from data.built import BadSource, Built
from data.sources import BUILDS, EVALUATION_SETS, Build, SourceMatch, describe_files
from soul.cli.arguments import existing_folder, output_folder
from soul.cli.error_border import Parser, reports_errors
from soul.errors import one_line

_SHOWN = 6  # unused files to name for each reason; a clone of a repository has hundreds


@dataclass(frozen=True)
class Outcome:
    """The result for one set: built, or why not."""

    name: str
    state: Literal["built", "no source", "failed"]
    rows: int = 0
    remarks: tuple[str, ...] = ()
    read: tuple[Path, ...] = ()


def build_set(name: str, root: Path, out: Path) -> Outcome:
    """Write the file of one evaluation set, if its source is there."""
    build = BUILDS[name]
    match = build.find(root)
    if match.form is None:
        return _incomplete(name, build, match)
    print(f"building {name} from {match.folder}", file=sys.stderr)
    module = importlib.import_module(f"data.{build.builder}")
    read = (*match.files, *match.beside)
    try:
        built: Built = module.build(build.arguments(match, out))
    except (OSError, ValueError) as error:
        return Outcome(name, "failed", remarks=(one_line(error),), read=read)
    except Exception as error:  # noqa: BLE001 - a defect of one builder must not stop the other sets
        command = f"for the traceback: python -m data.{build.builder} {' '.join(build.arguments(match, out))}"
        return Outcome(name, "failed", remarks=(f"{type(error).__name__}: {one_line(error)} ({command})",), read=read)
    stands_in = [match.form.stands_in] if match.form.stands_in else []
    return Outcome(name, "built", built.rows, (*stands_in, *built.remarks), read)


def _incomplete(name: str, build: Build, match: SourceMatch) -> Outcome:
    wanted = describe_files(match.missing if match.files else build.forms[0].files)
    remark = f"put {wanted} into {match.folder}. Source: {build.where}"
    if match.files:
        return Outcome(name, "failed", remarks=(f"the source is incomplete: {remark}",), read=match.files)
    return Outcome(name, "no source", remarks=(remark,))


def unused(root: Path, outcomes: Sequence[Outcome]) -> Iterator[str]:
    """Describe the files of SOURCES that no set reads, in one line for each folder and reason.

    Hidden files and those that come with every download (`sources.UNUSED` without a reason) are not listed.
    """
    read = {path for outcome in outcomes for path in outcome.read}
    builds: dict[str, Build] = {folder: build for build in BUILDS.values() for folder in build.folders}
    for folder in sorted(path for path in root.iterdir() if path.is_dir()):
        rest = [path.relative_to(folder) for path in sorted(folder.rglob("*")) if path.is_file() and path not in read]
        build = builds.get(folder.name)
        if build is not None:
            yield from (f"{folder.name}: {line}" for line in _by_reason(rest, build))
        elif rest:
            yield f"{folder.name}: no set has a folder of this name (the names are {', '.join(sorted(builds))})"


def _by_reason(paths: Sequence[Path], build: Build) -> Iterator[str]:
    reasons: dict[str | None, list[str]] = {}
    for path in paths:
        if not any(part.startswith(".") for part in path.parts):
            reasons.setdefault(build.why_unused(path), []).append(str(path))
    for reason, names in reasons.items():
        if reason != "":
            more = f" and {len(names) - _SHOWN:,} more" if len(names) > _SHOWN else ""
            yield f"{', '.join(names[:_SHOWN])}{more}{f' ({reason})' if reason else ''}"


def table(outcomes: Sequence[Outcome]) -> Table:
    """The outcomes as a table."""
    view = Table(title="Evaluation sets", title_justify="left")
    view.add_column("set", no_wrap=True)
    view.add_column("state", no_wrap=True)
    view.add_column("rows", justify="right", no_wrap=True)
    view.add_column("notes", overflow="fold")
    for outcome in outcomes:
        rows = f"{outcome.rows:,}" if outcome.state == "built" else "-"
        view.add_row(outcome.name, outcome.state, rows, "\n".join(outcome.remarks))
    return view


@reports_errors
def main(arguments: Sequence[str] | None = None) -> int:
    """Build all sets. Returns the exit code: 0, or 1 if a source exists but its set could not be built."""
    parser = Parser(prog="python -m data.sets", description=__doc__)
    parser.add_argument("sources", type=existing_folder, metavar="SOURCES", help="holds a folder for each benchmark")
    parser.add_argument(
        "--out", type=output_folder, default="data", help="DATA_DIR; the files go to its sim_eval_data/"
    )
    args = parser.parse_args(arguments)
    files = {name: args.out / "sim_eval_data" / f"{part.file}.parquet" for name, part in EVALUATION_SETS.items()}
    outcomes = [build_set(name, args.sources, out) for name, out in files.items()]
    outcomes = [_with_older_file(outcome, files[outcome.name]) for outcome in outcomes]
    console = Console(width=max(120, Console().width), markup=False, highlight=False)
    console.print(table(outcomes))
    if lines := list(unused(args.sources, outcomes)):
        console.print("Not used:", *lines, sep="\n  ")
    states = [outcome.state for outcome in outcomes]
    counts = {state: states.count(state) for state in ("built", "no source", "failed")}
    console.print("{built} sets built, {no source} without a source, {failed} failed".format_map(counts))
    if set(states) == {"no source"}:
        raise BadSource(f"{args.sources} holds no source of any set: the table says which files to put where.")
    return 1 if "failed" in states else 0


def _with_older_file(outcome: Outcome, out: Path) -> Outcome:
    """Point out a file of an earlier build, because evaluation would silently use it."""
    if outcome.state == "built" or not out.exists():
        return outcome
    return replace(outcome, remarks=(*outcome.remarks, f"evaluation will use an older {out}, which still exists"))


if __name__ == "__main__":
    sys.exit(main())
