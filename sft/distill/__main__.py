"""`python -m sft.distill --out DIR [TASK=EXPERT ...] [section.key=value ...] [-- arguments of vLLM]`.

    python -m sft.distill --out outputs/distilled hitom=outputs/hitom sotopia=outputs/sotopia/global_step_50
    python -m sft.distill --out outputs/distilled "coser=endpoint:gpt-5.4@https://api.openai.com/v1#OPENAI_API_KEY"
    python -m sft.distill --out outputs/distilled --threshold hitom=1 --per-row 2

Each expert answers the training rows of its task, --n times each. The task's own verdict scores the answers, and the
best ones become train.parquet and val.parquet. Repeat the command to continue where it stopped. Without TASK=EXPERT it
runs no samples, and selects again from those in DIR. An expert is a checkpoint (served by vLLM) or an endpoint.
"""

import argparse
import glob
import os
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from ditto.launching.variables import names_in
from sft.distill import dataset, report
from sft.distill.experts import experts, split, task_of
from sft.distill.sample import journals, samples_wanted
from sft.distill.sampling import sample
from sft.distill.select import Rule, check_rule, choose
from soul import tasks
from soul.cli.arguments import (
    non_negative_int,
    output_folder,
    positive_int,
    positive_share,
    probability,
    share,
)
from soul.cli.error_border import Parser, reports_errors
from soul.errors import BadSettings, SoulError
from soul.evaluate.run.options import add_run_choice_options, add_server_options
from soul.evaluate.run.settings import choose_sets
from soul.evaluate.run.vllm_server import ServerSettings
from soul.evaluate.runner import console
from soul.rows.near_text import NEAR
from soul.rows.overlap import HeldOut
from soul.rows.task_files import read_rows
from soul.suites import soul_v1

NEAR_HELP = f"share of word pairs that makes a text that of an evaluation (default {NEAR}; 1: only the same words)"
MAX_FAILED_HELP = f"end if a task lost a larger share of its samples (default {report.MAX_FAILED})"


class NothingToSelect(SoulError):
    """There are no samples."""


def options() -> Parser:
    """The command line."""
    parser = Parser(prog="python -m sft.distill", description=__doc__)
    add = parser.add_argument
    add("words", nargs="*", help="TASK=EXPERT, TASK:FILE=EXPERT, or section.key=value as in an evaluation")
    add("--out", type=output_folder, required=True, help="folder for samples, parquet files and the report")
    add("--data", type=Path, default=Path(os.environ.get("DATA_DIR", "data")), help="default: DATA_DIR, else data")
    add(
        "--not-in",
        action="append",
        default=[],
        metavar="SET",
        help="evaluation set, file or glob whose rows are left out",
    )
    add("--near", type=positive_share, default=NEAR, metavar="SHARE", help=NEAR_HELP)
    _sampling(parser.add_argument_group("sampling"))
    _selection(parser.add_argument_group("selection"))
    return parser


def _sampling(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add("--n", type=positive_int, default=8, help="samples per row (default 8)")
    add("--limit", type=positive_int, help="rows per task, drawn with the seed (the paper: 1,024)")
    add_server_options(group)
    group.add_argument("--max-prompt-tokens", type=positive_int, help="truncate longer rows as in training")
    add_run_choice_options(group)


def _selection(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    lowest = "lowest reward to keep (default: the mean of the row's samples)"
    add("--threshold", action="append", default=[], metavar="[TASK=]REWARD", help=lowest)
    add("--per-row", type=non_negative_int, default=1, help="samples to keep per row (default 1; 0: all)")
    add("--weight", action="append", default=[], metavar="[TASK=]SHARE", help="relative size; 1: all equal")
    add("--max-failed", type=probability, default=report.MAX_FAILED, metavar="SHARE", help=MAX_FAILED_HELP)
    add("--val-share", type=share, default=0.02, help="share of the groups for val.parquet (default 0.02)")
    add("--seed", type=int, default=0, help="for all draws: rows, ties, balance, val.parquet")


def by_task(option: str, words: Sequence[str]) -> dict[str, float]:
    """Parse `0.5` and `hitom=1` into task -> number; the key "" holds for all other tasks."""
    numbers: dict[str, float] = {}
    for word in words:
        task, _, text = word.rpartition("=")
        try:
            numbers[task] = float(text)
        except ValueError:
            raise BadSettings(f"{option} {word}: {text!r} is not a number. Write {option} 0.5 or TASK=0.5.") from None
        if option != "--threshold" and not 0 <= numbers[task] < float("inf"):
            raise BadSettings(f"{option} {word}: use a number that is at least 0.")
    return numbers


def read_held_out(words: Sequence[str], data_dir: Path, near: float) -> HeldOut:
    """The groups that files (paths and globs) and evaluation sets (names) hold out from training.

    Args:
        near: the share of word pairs from which two texts count as the same, above 0 to 1 (`NearTexts`).
    """
    files: list[Path] = []
    for word in words:
        if word in soul_v1.SETS or word in tasks.names():
            files += choose_sets([word], data_dir).values()
        elif found := sorted(glob.glob(word, recursive=True)):
            files += map(Path, found)
        else:
            raise BadSettings(f"--not-in {word}: no such file, and no evaluation set has this name.")
    return HeldOut(read_rows([str(file) for file in files]), near)


def distill(given: argparse.Namespace, server: ServerSettings) -> None:
    """Sample, select and write."""
    rule = Rule(
        threshold=by_task("--threshold", given.threshold),
        per_row=given.per_row or None,
        weights=by_task("--weight", given.weight),
        seed=given.seed,
    )
    named, settings = split(given.words)
    held_out = read_held_out(given.not_in, given.data, given.near)
    if named:
        asked = experts(named, names_in("TRAIN_FILES", os.environ), given.data)
        known = {sample.task for journal in journals(given.out, held_out) for sample in journal.samples()}
        check_rule(rule, known | {task_of(key) for expert in asked for key in expert.sets})  # before anything is paid
        sample(asked, settings, given, server, held_out)
    elif settings:
        raise BadSettings(f"{settings[0]}: nothing is sampled without TASK=EXPERT, so this setting has no effect.")
    elif given.dry_run:
        raise BadSettings("--dry-run prints the plan for sampling, so it needs TASK=EXPERT. Selecting makes no calls.")
    if not given.dry_run:
        select(given, rule, held_out)


def select(given: argparse.Namespace, rule: Rule, held_out: HeldOut) -> None:
    """Select from the existing samples, write the files and print the counts."""
    expert_journals = journals(given.out, held_out)
    samples = [sample for journal in expert_journals for sample in journal.samples()]
    if not expert_journals:
        raise NothingToSelect(f"{given.out}: there is no sample. Add TASK=EXPERT.")
    selection = choose(samples, rule, {s.data_source: tasks.load(s.data_source).headline for s in samples})
    reports = report.by_task(selection)
    console.print(report.table(reports).rich("Distilled"))
    wanted = samples_wanted(expert_journals)
    missing = wanted.total() - len(samples)
    if missing:
        console.print(f"{missing:,} samples are missing: repeat the command with TASK=EXPERT to take them.")
    left_out = Counter(task_of(name) for journal in expert_journals for name, _ in journal.held_out)
    for task, count in left_out.items():
        console.print(f"{task}: {count:,} rows are rows of an evaluation (--not-in) and were left out.")
    report.check_tasks(reports, samples, wanted, rule, given.max_failed)
    files = dataset.write(selection, given.out, given.val_share, rule.seed)
    more = {
        "experts": [{"expert": j.name, "sets": dict(j.sets), "policy": j.settings["policy"]} for j in expert_journals],
        "not_in": given.not_in,
        "near": given.near,
        "rows_of_evaluations": dict(left_out),
        "missing": missing,
        "val_share": given.val_share,
    }
    report.write(given.out, rule, reports, files, more)
    console.print(", ".join(f"{given.out / name}: {count:,} rows" for name, count in files.items() if count))


@reports_errors
def main(arguments: Sequence[str] | None = None) -> None:
    """Sample and select."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    at = words.index("--") if "--" in words else len(words)
    given = options().parse_args(words[:at])
    distill(given, ServerSettings(given.tp, given.dp, tuple(words[at + 1 :]), given.platform))


if __name__ == "__main__":
    sys.exit(main())
