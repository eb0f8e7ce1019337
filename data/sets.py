"""Build the files of all evaluation sets whose sources you have.

    python -m data.sets SOURCES --out data        ->  data/sim_eval_data/hitom_val.parquet, ...
    python -m data.sets SOURCES --out data --tasks hitom,coser

SOURCES holds a folder for each benchmark: a clone of its authors' repository, or a folder with its name (hitom/,
fantom/, ...) and the files as they publish them; see `data.sources` for their names. A table lists the suite's 27 sets
and ParaToMi's paraphrased test: how many rows each has, what was left out and why, or which files to put where. If a
set fails, the others are still built, and the exit code is 1. It is 2 if SOURCES holds no source at all.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from rich.console import Console
from rich.table import Table

from data.builder_cli import BadSource, Built
from data.source_folders import Build, SourceMatch, Sources, describe_files
from data.sources import BUILDS, EVALUATION_SETS
from soul.cli.arguments import existing_folder, output_folder
from soul.cli.error_border import Parser, reports_errors
from soul.errors import one_line
from soul.rows import data_card as card
from soul.suites import soul_v1


@dataclass(frozen=True)
class Outcome:
    """The result for one set: built, or why not."""

    name: str
    state: Literal["built", "no source", "failed"]
    rows: int = 0
    remarks: tuple[str, ...] = ()


def build_set(name: str, root: Path | Sources, out: Path) -> Outcome:
    """Write the file of one evaluation set, if its source is there."""
    build = BUILDS[name]
    match = build.find(root)
    if match.form is None:
        return _incomplete(name, build, match)
    print(f"building {name} from {match.folder}", file=sys.stderr)
    module = importlib.import_module(f"data.{build.builder}")
    try:
        built: Built = module.build(build.arguments(match, out))
    except (OSError, ValueError) as error:
        return Outcome(name, "failed", remarks=(one_line(error),))
    except Exception as error:  # noqa: BLE001 - a defect of one builder must not stop the other sets
        command = f"for the traceback: python -m data.{build.builder} {' '.join(build.arguments(match, out))}"
        return Outcome(name, "failed", remarks=(f"{type(error).__name__}: {one_line(error)} ({command})",))
    stands_in = match.form.stands_in or built.stands_in
    about = _card(name, match, built, stands_in, root.root if isinstance(root, Sources) else root)
    card.write_inside(out, about)
    return Outcome(name, "built", built.rows, (*filter(None, [match.form.stands_in]), *built.remarks))


def _card(name: str, match: SourceMatch, built: Built, stands_in: str, root: Path) -> card.SetCard:
    """What an evaluation file says about itself; equal sources give equal bytes, so it names no date."""
    build = BUILDS[name]
    words = [Path(word).name for word in build.arguments(match, built.files[0].path)]
    return card.SetCard(
        task=EVALUATION_SETS[name].task,
        rows=built.rows,
        sources=card.source_files([*match.files, *match.beside], root),
        where=build.where,
        licences=[origin.stated() for origin in build.origins],
        stands_in=stands_in,
        builder=" ".join(["python -m", f"data.{build.builder}", *words]),
        left_out=dict(built.left_out),
        notes=list(built.notes),
    )


def _incomplete(name: str, build: Build, match: SourceMatch) -> Outcome:
    wanted = describe_files(match.missing if match.files else build.forms[0].files)
    remark = f"put {wanted} into {match.folder}. Source: {build.where}"
    if match.files:
        return Outcome(name, "failed", remarks=(f"the source is incomplete: {remark}",))
    return Outcome(name, "no source", remarks=(remark,))


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


def _sets(text: str) -> list[str]:
    names = [each for name in text.split(",") for each in (soul_v1.ALIGNX if name == "alignx" else (name,))]
    if unknown := [name for name in names if name not in EVALUATION_SETS]:
        raise argparse.ArgumentTypeError(f"{unknown[0]!r} is none of {', '.join(EVALUATION_SETS)}")
    return list(dict.fromkeys(names))


@reports_errors
def main(arguments: Sequence[str] | None = None) -> int:
    """Build all sets. Returns the exit code: 0, or 1 if a source exists but its set could not be built."""
    parser = Parser(prog="python -m data.sets", description=__doc__)
    parser.add_argument("sources", type=existing_folder, metavar="SOURCES", help="holds a folder for each benchmark")
    parser.add_argument(
        "--out", type=output_folder, default="data", help="DATA_DIR; the files go to its sim_eval_data/"
    )
    parser.add_argument("--tasks", type=_sets, default=list(EVALUATION_SETS), help="hitom,coser,... (default: all)")
    args = parser.parse_args(arguments)
    sources = Sources(args.sources)
    files = {name: args.out / "sim_eval_data" / f"{EVALUATION_SETS[name].file}.parquet" for name in args.tasks}
    outcomes = [build_set(name, sources, out) for name, out in files.items()]
    outcomes = [_with_older_file(outcome, files[outcome.name]) for outcome in outcomes]
    console = Console(width=max(120, Console().width), markup=False, highlight=False)
    console.print(table(outcomes))
    states = [outcome.state for outcome in outcomes]
    counts = {state: states.count(state) for state in ("built", "no source", "failed")}
    console.print("{built} sets built, {no source} without a source, {failed} failed".format_map(counts))
    if set(states) == {"no source"}:
        raise BadSource(
            f"{args.sources} holds no source of any of these sets: the table says which files to put where."
        )
    return 1 if "failed" in states else 0


def _with_older_file(outcome: Outcome, out: Path) -> Outcome:
    """Point out a file of an earlier build, because evaluation would silently use it."""
    if outcome.state == "built" or not out.exists():
        return outcome
    return replace(outcome, remarks=(*outcome.remarks, f"evaluation will use an older {out}, which still exists"))


if __name__ == "__main__":
    sys.exit(main())
