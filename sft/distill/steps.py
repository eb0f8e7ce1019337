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
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from ditto.launching.variables import names_in
from soul.cli.arguments import output_folder
from soul.cli.error_border import Parser, reports_errors
from soul.cli.redaction import redact_guessing
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
    add("--setting", type=_setting, action="append", default=[], metavar="NAME=VALUE", help="any other input")
    return parser


def _inputs(given: argparse.Namespace, words: Sequence[str]) -> Inputs:
    """The inputs that a command line names; `words` are the arguments of distill.sh."""
    from sft.distill import inputs  # a second of imports, which `finish` does not need
    from sft.distill.experts import experts
    from sft.distill.heldout import set_files

    data_dir, train_files = Path(os.environ.get("DATA_DIR", "data")), names_in("TRAIN_FILES", os.environ)
    named = experts(given.expert, train_files, data_dir)
    models = [*given.model, *(expert.name for expert in named if not expert.is_endpoint)]
    rows = {name: [path] for expert in named for name, path in expert.sets.items()}
    rows |= {f"the evaluation {word}": set_files(word, data_dir) for word in given.set}
    return {
        **({"experts": " ".join(given.expert)} if given.expert else {}),
        **inputs.of_models(models, os.environ.get("BASE_MODEL_PATH")),
        **inputs.of_rows(rows),
        **inputs.of_files(given.file),
        **dict(given.setting),
        **(_command_line(words) if given.expert or given.set else {}),
    }


def _command_line(words: Sequence[str]) -> Inputs:
    """The arguments of distill.sh, and the judges that they and the environment name. Keys are in neither."""
    from sft.distill import inputs
    from sft.distill.experts import split
    from soul.judge import GatewaySettings
    from soul.judge.roles import sections_of

    at = words.index("--") if "--" in words else len(words)
    _, settings = split([word for word in words[:at] if "=" in word])
    sections = sections_of(settings, ["tasks"])
    gateway = {name: section for name, section in sections.items() if name not in ("tasks", "policy")}
    judges = inputs.of_judges(GatewaySettings.from_sections(gateway))
    return {"command line": redact_guessing(shlex.join(words)), **judges}


def _setting(word: str) -> tuple[str, str]:
    name, equals, value = word.partition("=")
    if not name or not equals:
        raise argparse.ArgumentTypeError(f"{word}: write NAME=VALUE")
    return name, value


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
