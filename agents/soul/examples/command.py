"""Write invented rows, so that you can try things out before you have real data.

    soul examples sotopia --rows 64 --out sotopia.parquet    # one file with the rows of the named tasks
    soul examples all --rows 64 --out try                    # a folder with a file for each set
    soul evaluate --data try policy.model=...                # finds all 27 sets there

The files have the format of real task files, but they teach nothing about people. In a folder, the evaluation sets are
under `sim_eval_data/` and the training files under `sim_rl_data/`, with the names that the launchers look for. Some
tasks have so few invented stories that both files share them: train with `data.allow_overlap=true`.
"""

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from soul import examples, tasks
from soul.cli.arguments import output_file, output_folder, positive_int
from soul.cli.error_border import Parser, reports_errors
from soul.rows.convert import write_task_file
from soul.rows.data_card import SetCard, write_inside
from soul.suites import soul_v1


def write(names: Sequence[str], count: int, out: Path, first: int = 0) -> None:
    """Write `count` rows of each task to one parquet file, starting with number `first` of its example."""
    numbers = range(first, first + count)
    rows = ((name, {"index": n, **examples.load(name).record(n)}) for name in names for n in numbers)
    written = write_task_file(rows, out, "soul examples")
    facts: dict[str, Any] = {"sources": [], "where": "soul examples", "left_out": {}, "notes": []}
    about = SetCard(task=",".join(names), rows=written, stands_in="invented rows", builder="soul examples", **facts)
    write_inside(out, about)


def write_sets(names: Collection[str], count: int, folder: Path) -> list[Path]:
    """Write the training files and the evaluation sets of these tasks to a folder; return the files.

    Training rows start at number `count`, so that they differ from the rows of the sets.
    """
    sets = [(part.task, 0, f"sim_eval_data/{part.file}.parquet") for part in soul_v1.SETS.values()]
    training = [(launch.task, count, f"sim_rl_data/{launch.train}.parquet") for launch in tasks.TASK_FILES.values()]
    files = [(task, first, folder / file) for task, first, file in (*sets, *training) if task in names]
    for task, first, path in files:
        write([task], count, path, first)
    return [path for _, _, path in files]


@reports_errors
def main(arguments: Sequence[str] | None = None) -> None:
    """Write the file or the folder."""
    parser = Parser(prog="soul examples", description=__doc__)
    parser.add_argument("task", nargs="+", choices=[*examples.names(), "all"], metavar="TASK")
    parser.add_argument("--rows", type=positive_int, default=64, help="rows of each task (default 64)")
    parser.add_argument(
        "--out", type=_output, required=True, help="FILE.parquet, or a folder for one file for each set"
    )
    given = parser.parse_args(arguments)
    names = list(examples.names()) if "all" in given.task else given.task
    if given.out.suffix == ".parquet":
        write(names, given.rows, given.out)
        print(f"{given.out}: {given.rows} invented rows of {', '.join(names)}")
        return
    written = write_sets(names, given.rows, given.out)
    if not written:
        parser.error(f"no evaluation set uses {', '.join(names)}; pass the path of a file that ends in .parquet")
    print(f"{given.out}: {len(written)} files with {given.rows} invented rows each")


def _output(text: str) -> Path:
    return output_file(text) if text.endswith(".parquet") else output_folder(text)
