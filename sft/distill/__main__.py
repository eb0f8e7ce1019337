"""`python -m sft.distill --out DIR [TASK=EXPERT ...] [section.key=value ...] [-- arguments of vLLM]`.

    python -m sft.distill --out outputs/distilled hitom=outputs/hitom sotopia=outputs/sotopia/global_step_50
    python -m sft.distill --out outputs/distilled "coser=endpoint:gpt-5.4@https://api.openai.com/v1#OPENAI_API_KEY"
    python -m sft.distill --out outputs/distilled --margin 0.25 --per-row 2
    python -m sft.distill --out outputs/forward --from-traces outputs/ditto-rl-hitom --not-in hitom

Each expert answers the training rows of its task, --n times each; the task's own verdict scores the answers; the best
become train.parquet and val.parquet. The same command goes on where it stopped. Without TASK=EXPERT nothing is sampled:
what the last command sampled into DIR is selected from anew. An expert is a checkpoint (vLLM serves it) or an endpoint.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from sft.distill import dataset, report
from sft.distill.experts import experts, split
from sft.distill.heldout import Unseen
from sft.distill.journals import journals
from sft.distill.sample import Source
from sft.distill.sampling import SamplingSettings, sample
from sft.distill.select import Rule, choose
from sft.distill.traces import RunTraces
from soul import tasks
from soul.cli.arguments import (
    existing_folder,
    non_negative_int,
    output_folder,
    positive_int,
    share,
)
from soul.cli.error_border import Parser, reports_errors
from soul.errors import BadSettings, SoulError
from soul.evaluate.run.options import Taking, add_server_options, add_taking_options
from soul.evaluate.run.runner import console
from soul.evaluate.run.vllm_server import ServerSettings

Number = TypeVar("Number", int, float)


class NothingToSelect(SoulError):
    """No sample is there, or none is worth keeping."""


def options() -> Parser:
    """The command line."""
    parser = Parser(prog="python -m sft.distill", description=__doc__)
    add = parser.add_argument
    add("words", nargs="*", help="TASK=EXPERT, TASK:FILE=EXPERT, and section.key=value as in an evaluation")
    add("--out", type=output_folder, required=True, help="where samples, parquet files and the report go")
    add("--data", type=Path, default=Path(os.environ.get("DATA_DIR", "data")), help="DATA_DIR")
    add(
        "--from-traces",
        type=existing_folder,
        action="append",
        default=[],
        metavar="RUN",
        help="refined answers of a DITTO run",
    )
    add("--with-feedback", action="store_true", help="keep the feedback in the prompts of refined answers")
    add("--not-in", action="append", default=[], metavar="SET", help="evaluation set, file or glob: never trained on")
    _sampling(parser.add_argument_group("sampling"))
    _selection(parser.add_argument_group("selection"))
    return parser


def _sampling(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add("--n", type=positive_int, default=8, help="samples of each row (default 8)")
    add("--limit", type=positive_int, help="rows of each task, drawn by the seed (the paper: 1,024)")
    add_server_options(group)
    add_taking_options(group)


def _selection(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add("--keep", choices=("best", "threshold"), default="best", help="the best of a row, or all that are good enough")
    add("--threshold", action="append", default=[], metavar="[TASK=]REWARD", help="the least, in the headline's units")
    add(
        "--margin", action="append", default=[], metavar="[TASK=]GAIN", help="over the row's mean; over a trace's draft"
    )
    add("--per-row", type=non_negative_int, default=1, help="samples kept of a row (default 1; 0: all)")
    add("--rows-per-task", action="append", default=[], metavar="[TASK=]ROWS", help="SFT rows of a task, drawn")
    add("--weight", action="append", default=[], metavar="[TASK=]SHARE", help="shares of the tasks; 1 for all: equal")
    add("--val-share", type=share, default=0.02, help="share of the rows that is held back (default 0.02)")
    add("--seed", type=int, default=0, help="of all draws: rows, ties, balance, what is held back")


def by_task(option: str, words: Sequence[str], number: Callable[[str], Number]) -> dict[str, Number]:
    """`0.5`, `hitom=1`: task -> number, "" for all others.

    Raises:
        BadSettings: it is no number, or a negative one where only others make sense.
    """
    found: dict[str, Number] = {}
    for word in words:
        task, _, text = word.rpartition("=")
        try:
            found[task] = number(text)
        except ValueError:
            raise BadSettings(
                f"{option} {word}: {text!r} is no number. Write {option} 0.5 or {option} TASK=0.5."
            ) from None
        if option != "--threshold" and not 0 <= found[task] < float("inf"):
            raise BadSettings(f"{option} {word}: use a number from 0 on.")
    return found


def rule_of(given: argparse.Namespace) -> Rule:
    """What a command line keeps.

    Raises:
        BadSettings: a number is none, or out of range.
    """
    return Rule(
        keep=given.keep,
        threshold=by_task("--threshold", given.threshold, float),
        margin=by_task("--margin", given.margin, float),
        per_row=given.per_row or None,
        rows_per_task=by_task("--rows-per-task", given.rows_per_task, int),
        weights=by_task("--weight", given.weight, float),
        seed=given.seed,
    )


def distill(given: argparse.Namespace, server: ServerSettings) -> None:
    """Sample, select, write.

    Raises:
        SoulError: something that the user can mend.
    """
    rule = rule_of(given)
    named, settings = split(given.words)
    unseen = Unseen.read(given.not_in, given.data)
    if named:
        wanted = SamplingSettings(
            words=settings,
            server=server,
            n=given.n,
            limit=given.limit,
            seed=given.seed,
            deadline_s=given.deadline,
            base=given.base,
            max_prompt_tokens=given.max_prompt_tokens,
            taking=Taking.from_arguments(given),
            dry_run=given.dry_run,
            thinking_tokens=given.thinking_tokens,
        )
        found = experts(named, os.environ.get("TRAIN_FILES", "").split(), given.data)
        sample(found, wanted, given.out, unseen)
    elif settings:
        raise BadSettings(f"{settings[0]}: nothing is sampled without TASK=EXPERT, so there is nothing to set.")
    elif given.dry_run:
        raise BadSettings("--dry-run prints the plan of a sampling: name TASK=EXPERT. A selection asks no endpoint.")
    if given.dry_run:
        return
    select(given, rule, unseen)


def select(given: argparse.Namespace, rule: Rule, unseen: Unseen) -> None:
    """Select from what is there, write the files, and say what came of it.

    Raises:
        NothingToSelect: no sample is there, or none is kept.
    """
    of_experts = journals(given.out)
    traces = [RunTraces(run, given.with_feedback) for run in given.from_traces]
    everything: list[Source] = [*of_experts, *traces]
    samples = [found for source in everything for found in source.samples(unseen)]
    if not samples:
        raise NothingToSelect(f"{given.out}: there is no sample. Name TASK=EXPERT, or --from-traces RUN.")
    selection = choose(samples, rule, {s.data_source: tasks.load(s.data_source).headline for s in samples})
    reports = report.by_task(selection)
    console.print(report.table(reports))
    missing = sum(len(j.wanted) for j in of_experts) - sum(s.source.origin == "expert" for s in samples)
    seen = sum((journal.seen(unseen) for journal in of_experts), Counter[str]())
    _say(missing, seen)
    if not selection.kept:
        raise NothingToSelect("No sample is kept: the table says why. Lower --threshold or --margin, or sample more.")
    files = dataset.write(selection.kept, given.out, given.val_share, rule.seed)
    sources = [{"expert": j.name, "sets": dict(j.sets), "policy": j.settings["policy"]} for j in of_experts]
    more = {
        "experts": sources,
        "traces": [{"run": source.name, "with_feedback": source.with_feedback} for source in traces],
        "not_in": given.not_in,
        "rows_of_evaluations": dict(seen),
        "missing": missing,
        "val_share": given.val_share,
    }
    report.write(given.out, rule, reports, files, more)
    console.print(", ".join(f"{given.out / name}: {count:,} rows" for name, count in files.items() if count))


def _say(missing: int, seen: Mapping[str, int]) -> None:
    if missing:
        console.print(
            f"{missing:,} samples that were asked for are not there: the same command with TASK=EXPERT goes on."
        )
    for task, count in seen.items():
        console.print(f"{task}: {count:,} rows are rows of an evaluation (--not-in); they were left out.")


@reports_errors
def main(arguments: Sequence[str] | None = None) -> None:
    """Sample and select."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    at = words.index("--") if "--" in words else len(words)
    given = options().parse_intermixed_args(words[:at])
    distill(given, ServerSettings(given.tp, given.dp, tuple(words[at + 1 :]), given.platform))


if __name__ == "__main__":
    sys.exit(main())
