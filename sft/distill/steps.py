"""`python -m sft.distill.steps begin|finish STEP --out DIR ...`: whether a step of distill.sh must run, and why.

    python -m sft.distill.steps begin student --out outputs/distilled --model Qwen/Qwen3-8B --file train.parquet
    python -m sft.distill.steps finish student --out outputs/distilled

DIR/steps/STEP.json holds what the step's result was made of (inputs.py). `begin` compares it with today's inputs. If
one has changed, the old result is moved to DIR/replaced, with its STEP.json, and so is the table of the evaluation,
which would show the old result under the new names. A step that was interrupted continues on the same inputs.

Exit code of `begin`: 0, the step must run; 3, its result is there and nothing has changed.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from ditto.launching.variables import names_in
from soul.cli.arguments import output_folder
from soul.cli.error_border import Parser, reports_errors
from soul.files.stamps import BadStamp, Inputs, Stamp

DONE = 3
# Step -> what it writes in DIR. Without the first of them, the step has no result.
RESULTS = {
    "data": ("data/train.parquet", "data/val.parquet", "data/distill.json"),
    "student": ("student",),
    "student-reverse": ("student-reverse",),
    "evaluation": ("eval-models.md",),
}
TABLE = "evaluation"
_REMEDY = "Remove it: the step then runs again, and its old result is moved aside."


def begin(out: Path, step: str, now: Inputs, *, dry_run: bool = False) -> bool:
    """Decide whether a step must run, and move results aside that were made of something else.

    Args:
        now: what the step would use today.
        dry_run: only print what would be done.

    Returns:
        Whether it must run.

    Raises:
        BadStamp: a stamp is damaged.
    """
    stamp, result = Stamp.read(_stamp_path(out, step), _REMEDY), out / RESULTS[step][0]
    if stamp is not None and stamp.inputs == now:
        if stamp.finished and result.exists():
            print(f"{step}: {result} is there, and nothing that it depends on has changed")
            return False
        print(f"{step}: continues on the same inputs")
    elif stamp is not None or result.exists():
        why = "; ".join(stamp.differences(now)) if stamp else "no record says what it was made of"
        print(f"{step}: runs again: {why}")
        if not dry_run:
            for name in dict.fromkeys((step, TABLE)):
                _set_aside(out, name)
    if not dry_run:
        Stamp(now).write(_stamp_path(out, step))
    return True


def finish(out: Path, step: str) -> None:
    """Record that a step has its result.

    Raises:
        BadStamp: the step was not begun.
    """
    path = _stamp_path(out, step)
    stamp = Stamp.read(path, _REMEDY)
    if stamp is None:
        raise BadStamp(f"{path} does not exist: begin the step first.")
    Stamp(stamp.inputs, finished=True).write(path)


def _stamp_path(out: Path, step: str) -> Path:
    return out / "steps" / f"{step}.json"


def _set_aside(out: Path, step: str) -> None:
    """Move the result of a step and its stamp to a new folder of DIR/replaced."""
    files = [path for path in (_stamp_path(out, step), *(out / name for name in RESULTS[step])) if path.exists()]
    if not files:
        return
    replaced = out / "replaced"
    replaced.mkdir(exist_ok=True)
    number = 1 + max((int(folder.name.partition("-")[0]) for folder in replaced.glob("[0-9]*-*")), default=0)
    folder = replaced / f"{number}-{step}"
    for path in files:
        target = folder / path.relative_to(out)
        target.parent.mkdir(parents=True, exist_ok=True)
        path.rename(target)
    print(f"{step}: the old result is now in {folder}")


def options() -> Parser:
    """The command line."""
    parser = Parser(prog="python -m sft.distill.steps", description=__doc__)
    add = parser.add_argument
    add("verb", choices=("begin", "finish"))
    add("step", choices=tuple(RESULTS))
    add("--out", type=output_folder, required=True, metavar="DIR", help="the folder of distill.sh")
    add("--dry-run", action="store_true", help="print what would be done, and change nothing")
    add("--model", action="append", default=[], metavar="PATH", help="a checkpoint or hub id")
    add("--expert", action="append", default=[], metavar="TASK=EXPERT", help="an expert and the rows that it answers")
    add("--set", action="append", default=[], help="evaluation set, file or glob")
    add("--file", type=Path, action="append", default=[], help="a file; it may be absent")
    add("--setting", action="append", default=[], metavar="NAME=VALUE", help="any other input")
    return parser


def _inputs(given: argparse.Namespace, words: Sequence[str]) -> Inputs:
    from sft.distill import inputs  # a second of imports, which `finish` does not need

    data_dir, base = Path(os.environ.get("DATA_DIR", "data")), os.environ.get("BASE_MODEL_PATH")
    train_files = names_in("TRAIN_FILES", os.environ)
    return {
        **inputs.of_models(given.model, base),
        **(inputs.of_experts(given.expert, train_files, data_dir, base) if given.expert else {}),
        **inputs.of_sets(given.set, data_dir),
        **inputs.of_files(given.file),
        **inputs.of_settings(given.setting),
        **(inputs.of_command_line(words) if given.expert or given.set else {}),
    }


@reports_errors
def main(arguments: Sequence[str] | None = None) -> int:
    """Begin or finish a step. The words after `--` are the arguments of distill.sh."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    at = words.index("--") if "--" in words else len(words)
    given = options().parse_args(words[:at])
    if given.verb == "finish":
        finish(given.out, given.step)
        return 0
    return 0 if begin(given.out, given.step, _inputs(given, words[at + 1 :]), dry_run=given.dry_run) else DONE


if __name__ == "__main__":
    sys.exit(main())
