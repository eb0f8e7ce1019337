"""Make a package with a task of your own, which trains and evaluates as it is.

    soul init dilemmas                 # the folder dilemmas/
    soul init dilemmas --out /my/code  # /my/code/dilemmas/

Then replace its rows and its question; the package's README says where.
"""

import re
import sys
from argparse import ArgumentTypeError
from collections.abc import Sequence
from pathlib import Path

from soul import tasks
from soul.cli.arguments import output_folder
from soul.cli.error_border import Parser, reports_errors
from soul.errors import BadSettings

TEMPLATE = Path(__file__).parent / "template"


def create(name: str, out: Path) -> Path:
    """Write the package `name` below the folder `out`. Raises BadSettings if the package's folder exists."""
    folder = out / name
    if folder.exists():
        raise BadSettings(f"{folder} exists. Choose another name, or another folder with --out.")
    words = {"NAME": name, "CLASS": "".join(part.capitalize() for part in name.split("_"))}
    for source in sorted(path for path in TEMPLATE.rglob("*.in")):
        file = folder / str(source.relative_to(TEMPLATE)).replace("package", name).removesuffix(".in")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(re.sub(r"\{\{(\w+)\}\}", lambda found: words[found[1]], source.read_text(encoding="utf-8")))
    return folder


def _name(text: str) -> str:
    if not re.fullmatch(r"[a-z][a-z0-9_]*", text) or text in sys.stdlib_module_names:
        raise ArgumentTypeError(f"{text!r}: use small letters, digits and _, and no name of Python's own modules")
    if text in {*tasks.names(), *tasks.TASK_FILES, "soul", "ditto", "data", "sft", "recipe"}:
        raise ArgumentTypeError(f"{text!r} exists already: choose another name")
    return text


@reports_errors
def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command."""
    parser = Parser(prog="soul init", description=__doc__)
    parser.add_argument("name", type=_name, metavar="NAME", help="the task's name, which rows have as data_source")
    parser.add_argument("--out", type=output_folder, default=Path(), help="folder of the package's folder (here)")
    given = parser.parse_args(arguments)
    folder = create(given.name, given.out)
    print(f"{folder}: go on with {folder / 'README.md'}")
