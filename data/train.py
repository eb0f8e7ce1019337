"""Build the training files of the paper's ten tasks whose sources you have, and the evaluation files beside them.

    python -m data.train SOURCES --out data              ->  data/sim_rl_data/*.parquet, data/sim_eval_data/*.parquet
    python -m data.train SOURCES --out data --dry-run    what would be built, what is missing, the price of calls
    python -m data.train SOURCES --out data goal_writer.model=gpt-5.4 judge.budget_usd=20
    python -m data.train --tasks hitom --out data        rows that are generated, which need no SOURCES

SOURCES holds a folder for each benchmark with the files as their authors publish them, as for `python -m data.sets`;
docs/data.md lists them. `bash recipe/ditto/run_rl.sh paper` trains on the result.

The evaluation files come first. Where the benchmark's own file of a generated task is missing, rows to validate on are
generated beside the training file. Each training file then leaves out every row that shares a story, a conversation, a
book, a question or a user with an evaluation file in `--out`, of any of the 27 sets. A card, FILE.card.json, says where
the rows come from.

Models write or check the rows of some tasks (`data.model_stages`). Their answers are kept in --out/stages, so the same
command goes on after an interruption and asks nothing twice.

A table lists the rows, the groups that they belong to, what was left out and why, or which files to put where. If a
source cannot be read, the other files are still built, and the exit code is 1. It is 2 if a name is unknown.
"""

import argparse
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from data.builder_cli import builder_of, counted
from data.model_stages import settings_of
from data.sets import BuildResult, build_set, counts, evaluation_file, states_table, wide_console
from data.sources import BUILDS, EXTRA_SETS
from data.training.building import SHARE_BOOKS, Building, Evaluated, build_validation, file_of
from data.training.table import TRAINING, RunOptions, TrainingBuild
from soul.cli.arguments import existing_folder, output_folder, positive_share
from soul.cli.error_border import Parser, reports_errors
from soul.errors import SoulError, one_line
from soul.table import Table


def plan(chosen: dict[str, TrainingBuild], root: Path, options: RunOptions) -> Table:
    """Return what would be built from which files, what is missing, and which models would be asked at what price."""
    lines = []
    for name, build in chosen.items():
        match = build.find(root)
        if match.form is None:
            what = build.what_to_get(match)
        else:
            size = sum(file.stat().st_size for file in match.files)
            read = f"read {len(match.files):,} files, {size / 2**20:,.1f} MiB" if match.files else "generate the rows"
            calls = _calls(build, build.training_arguments(match, Path("planned"), Path("other"), options)) or [
                "no calls to a model"
            ]
            what = "; ".join([read, *calls, *([match.form.stands_in] if match.form.stands_in else [])])
        lines.append([name, build.size, what])
    return states_table(("task", "in the paper", "plan"), lines)


def _calls(build: TrainingBuild, words: Sequence[str]) -> Sequence[str]:
    """A line for each stage that asks a model."""
    try:
        return builder_of(build.builder).planned(words)
    except (OSError, ValueError, SoulError) as error:
        return [f"cannot be read: {one_line(error)}"]


def table(outcomes: Sequence[BuildResult]) -> Table:
    """The outcomes as a table."""
    lines = []
    for outcome in outcomes:
        prices = [use.usd for use in outcome.models]
        cost = "unknown" if None in prices else f"${sum(usd or 0.0 for usd in prices):,.2f}"
        calls = sum(use.calls for use in outcome.models)
        numbers = [f"{count:,}" for count in (outcome.rows, outcome.groups, outcome.contaminated, calls)]
        cells = [*numbers, cost] if outcome.state == "built" else ["-"] * 5
        notes = (*counted("left out", outcome.left_out), *outcome.remarks)
        lines.append([outcome.name, outcome.state, *cells, "\n".join(notes)])
    return states_table(("task", "state", "rows", "groups", "evaluated", "calls", "cost", "notes"), lines)


def _evaluation_files(chosen: Iterable[str], root: Path, data: Path) -> Iterator[str]:
    """Build the evaluation files of these tasks; a line for each that could not be built."""
    for name in chosen:
        out = evaluation_file(data, name)
        outcome = build_set(name, root, out)
        if outcome.state != "built":
            older = "; an older file is used" if out.exists() else ""
            yield f"{name}: {'; '.join(outcome.remarks)}{older}"


def _tasks(text: str) -> list[str]:
    names = text.split(",")
    if unknown := [name for name in names if name not in TRAINING]:
        raise argparse.ArgumentTypeError(f"{unknown[0]!r} is none of {', '.join(TRAINING)}")
    return list(dict.fromkeys(names))


def _options(args: argparse.Namespace) -> RunOptions:
    evaluated = tuple(file for name in args.tasks if (file := evaluation_file(args.out, name)).exists())
    return RunOptions(args.seed, tuple(args.models), args.out / "stages", evaluated)


@reports_errors
def main(arguments: Sequence[str] | None = None) -> int:
    """Build the files. Returns the exit code: 0, or 1 if a source exists but its file could not be built."""
    parser = Parser(prog="python -m data.train", description=__doc__)
    sources = "holds a folder for each benchmark (default: OUT/sources)"
    parser.add_argument("sources", type=existing_folder, nargs="?", metavar="SOURCES", help=sources)
    parser.add_argument("models", nargs="*", metavar="ROLE.KEY=VALUE", help="settings of the models that write rows")
    parser.add_argument("--out", type=output_folder, default="data", help="DATA_DIR (default data)")
    parser.add_argument("--tasks", type=_tasks, default=list(TRAINING), help="hitom,coser,... (default: all ten)")
    parser.add_argument("--seed", type=int, default=0, help="seed of random choices among training rows (default 0)")
    parser.add_argument("--near", type=positive_share, metavar="SHARE", help="leave out near duplicates too (0.6)")
    parser.add_argument("--dry-run", action="store_true", help="print the plan and write nothing")
    args = parser.parse_args(arguments)
    root = args.sources or args.out / "sources"
    settings_of(args.models)  # a wrong setting is an error before anything is built
    chosen = {name: TRAINING[name] for name in args.tasks}
    console = wide_console()
    if args.dry_run:
        console.print(plan(chosen, root, _options(args)).rich("Plan"))
        if absent := [name for name in chosen if not evaluation_file(args.out, name).exists()]:
            console.print(
                f"The plan includes what will be left out as evaluated, as there is no file of {', '.join(absent)}."
            )
        return 0
    # Books are compared between the two tasks that take them from novels, so both evaluation files are needed.
    compared = dict.fromkeys([*args.tasks, *(SHARE_BOOKS if SHARE_BOOKS & set(args.tasks) else ())])
    extra = [n for n, part in EXTRA_SETS.items() if part.task in compared and BUILDS[n].find(root).form]
    without = list(_evaluation_files([*compared, *extra], root, args.out))
    evaluated = Evaluated.in_folder(args.out, args.near)
    building = Building(root, args.out, evaluated, _options(args))
    outcomes = [building.run(name, build) for name, build in chosen.items()]
    console.print(table(outcomes).rich("Training files"))
    for name, build in chosen.items():
        if build.validation and not evaluation_file(args.out, name).exists():
            file, rows = build_validation(name, build, args.out, args.seed)
            console.print(f"{name}: {rows:,} generated rows to validate a training run on: {file}")
    if without:
        console.print("Evaluation files that were not built:", *without, sep="\n  ")
    for outcome in outcomes:
        if outcome.state != "built" and file_of(outcome.name, args.out).exists():
            console.print(f"{outcome.name}: training will use an older {file_of(outcome.name, args.out)}")
    states = [outcome.state for outcome in outcomes]
    console.print(counts(states, "training files"))
    return 1 if "failed" in states else 0


if __name__ == "__main__":
    sys.exit(main())
