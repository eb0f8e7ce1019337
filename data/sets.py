"""Build the files of all evaluation sets whose sources you have.

    python -m data.sets SOURCES --out data        ->  data/sim_eval_data/hitom_val.parquet, ...
    python -m data.sets SOURCES --out data --tasks hitom,coser

SOURCES holds a folder for each benchmark: a clone of its authors' repository, or a folder with its name (hitom/,
fantom/, ...) and the files as they publish them; see `data.sources` for their names. A table lists the suite's 27 sets
and ParaToMi's paraphrased test: how many rows each has, what was left out and why, or which files to put where. If a
set fails, the others are still built, and the exit code is 1. It is 2 if SOURCES holds no source at all.
"""

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Literal, NamedTuple

from rich.console import Console

from data.builder_cli import BadSource, Built, builder_of
from data.source_folders import SourceMatch
from data.sources import BUILDS, EVALUATION_SETS
from soul.cli.arguments import existing_folder, output_folder
from soul.cli.error_border import Parser, keep_traceback, reports_errors
from soul.errors import SoulError, one_line
from soul.rows import data_card as card
from soul.suites import soul_v1
from soul.table import Table

State = Literal["built", "no source", "failed"]


class BuildResult(NamedTuple):
    """The result for one file: built, or why not.

    Attributes:
        left_out: rows of the source that are not in a training file, by reason.
        contaminated: rows left out because they share a group with an evaluated one.
        remarks: what the user should know, or what to do.
        models: the models that were asked.
    """

    name: str
    state: State
    rows: int = 0
    remarks: tuple[str, ...] = ()
    groups: int = 0
    left_out: Mapping[str, int] = MappingProxyType({})
    contaminated: int = 0
    models: tuple[card.ModelCalls, ...] = ()


def result_of(name: str, build: Callable[[], BuildResult], scratch: str = "") -> BuildResult:
    """Build one file; a failure is a result, so that the other files are still built.

    Args:
        scratch: a folder that remarks do not name.
    """
    try:
        return build()
    except (OSError, ValueError, SoulError) as error:
        remark = one_line(error).replace(scratch, "")
    except Exception as error:  # noqa: BLE001 - a defect of one builder must not stop the others
        remark = f"{type(error).__name__}: {one_line(error)} ({keep_traceback(error)})"
    return BuildResult(name, "failed", remarks=(remark,))


def evaluation_file(data: Path, name: str) -> Path:
    """The file of an evaluation set below DATA_DIR."""
    return data / "sim_eval_data" / f"{EVALUATION_SETS[name].file}.parquet"


def build_set(name: str, root: Path, out: Path) -> BuildResult:
    """Write the file of one evaluation set, if its source is there."""
    build = BUILDS[name]
    match = build.find(root)
    if match.form is None:
        remark = build.what_to_get(match)
        if match.files:
            return BuildResult(name, "failed", remarks=(f"the source is incomplete: {remark}",))
        return BuildResult(name, "no source", remarks=(remark,))
    print(f"building {name} from {match.folder}", file=sys.stderr)
    words, stands_in = build.arguments(match, out), match.form.stands_in

    def write() -> BuildResult:
        built = builder_of(build.builder).build(words)
        card.write_inside(out, _card(name, match, built, words, root))
        return BuildResult(name, "built", built.rows, (*filter(None, [stands_in]), *built.remarks))

    return result_of(name, write)


def _card(name: str, match: SourceMatch, built: Built, words: Sequence[str], root: Path) -> card.SetCard:
    """The facts that an evaluation file carries; equal sources give equal bytes, so it names no date."""
    assert match.form is not None, match
    build = BUILDS[name]
    return card.SetCard(
        task=EVALUATION_SETS[name].task,
        rows=built.rows,
        sources=card.source_files([*match.files, *match.beside], root),
        where=build.where,
        licences=[origin.stated() for origin in build.origins],
        stands_in=match.form.stands_in or built.stands_in,
        builder=" ".join(["python -m", f"data.{build.builder}", *(Path(word).name for word in words)]),
        left_out=dict(built.left_out),
        notes=list(built.notes),
    )


def wide_console() -> Console:
    """A console on which a table with notes is readable."""
    return Console(width=max(120, Console().width), markup=False, highlight=False)


def states_table(head: Sequence[str], lines: Sequence[Sequence[str]]) -> Table:
    """A table of names, states, numbers, and notes, which alone are wrapped."""
    notes = len(head) - 1
    return Table(head, lines, words=frozenset({1, notes}), whole=frozenset(range(notes)))


def counts(states: Sequence[State], what: str) -> str:
    """A line with the numbers of files in each state."""
    built, without, failed = (states.count(state) for state in ("built", "no source", "failed"))
    return f"{built} {what} built, {without} without a source, {failed} failed"


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
    lines, states = [], []
    for name in args.tasks:
        out = evaluation_file(args.out, name)
        outcome = build_set(name, args.sources, out)
        built, remarks = outcome.state == "built", list(outcome.remarks)
        if not built and out.exists():
            remarks.append(f"evaluation will use an older {out}, which still exists")
        lines.append([name, outcome.state, f"{outcome.rows:,}" if built else "-", "\n".join(remarks)])
        states.append(outcome.state)
    console = wide_console()
    console.print(states_table(("set", "state", "rows", "notes"), lines).rich("Evaluation sets"))
    console.print(counts(states, "sets"))
    if set(states) == {"no source"}:
        raise BadSource(
            f"{args.sources} holds no source of any of these sets: the table says which files to put where."
        )
    return 1 if "failed" in states else 0


if __name__ == "__main__":
    sys.exit(main())
