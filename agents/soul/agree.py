"""Compare a judge with people, on texts that people labelled: `soul judge agree`.

    soul judge agree                                      # the tasks with published labels, and where to get them
    soul judge agree sotopia --labels sotopia-pi/human_eval judge.model=gpt-5-mini
    soul judge agree sotopia --labels sotopia-pi/human_eval --recorded       # ask nobody
    soul judge agree --labels labels.jsonl                # labels of your own (soul judge draw --export)
    soul judge agree sotopia --labels FOLDER --expected   # also expected scores, from the log-probabilities of levels

The judge gets the task's own prompt on each labelled text. With --recorded, the scores that are published with the
labels count; where there are none, people are compared with each other only. Settings are those of `soul judge`.
"""

import asyncio
import json
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from soul.cli.arguments import non_negative_int, output_file, positive_int
from soul.cli.error_border import Parser, reports_errors
from soul.errors import BadSettings
from soul.judge.audit import human_agreement
from soul.judge.audit.human_labels import Label, RecordedLabel, read_labels
from soul.judge.gateway import Gateway
from soul.judge.ledger import Ledger, table
from soul.judge.roles import GatewaySettings, sections_of
from soul.published_labels import SOURCES


def labels_of(task: str | None, path: Path | None) -> list[Label]:
    """The labels of a task, or of a file of your own.

    Raises:
        BadSettings: there is nothing to read; the message says where published labels are.
    """
    if task is not None and task not in SOURCES:
        raise BadSettings(
            f"There are no published labels for {task!r}, only for {', '.join(SOURCES)}. Have people label texts of a "
            "run (soul judge draw), and give the file without a task: soul judge agree --labels labels.jsonl."
        )
    if path is None:
        places = [f"{name}: {source}" for name, source in SOURCES.items() if task in (None, name)]
        raise BadSettings("\n".join(["Give --labels with a copy of the labels:", *places]))
    return SOURCES[task].load(path) if task else list(read_labels(path))


async def run(sections: dict[str, dict[str, Any]], task: str | None, args: Namespace) -> int:
    """Compare, and show the result. Returns 1 if the judge was asked and gave no verdict on some metric, else 0."""
    labels = labels_of(task, args.labels)
    ask = not args.recorded and not all(isinstance(label, RecordedLabel) for label in labels)
    # Without a run folder, answers are cached only if judge.cache_dir is set.
    async with Gateway.connect(GatewaySettings.from_sections(sections)) as gateway:
        judge = gateway.by_task.get(task or "", gateway.judge) if ask else None
        if judge:
            await judge.check()
        if judge and args.expected:
            labels += [human_agreement.Expected(label) for label in labels if not isinstance(label, RecordedLabel)]
        found = await human_agreement.compare(judge, labels, repeats=args.repeats, seed=args.seed)
        ledger = Ledger()
        ledger.add("agree", gateway.usage())
    console = Console(width=max(120, Console().width))  # rich assumes 80 columns for a pipe, too few for the table
    if task:
        console.print(f"Labels: {SOURCES[task]}", highlight=False)
    console.print(human_agreement.table(found), *([table(ledger)] if ask else []))
    if args.json is not None:
        args.json.write_text(json.dumps(found.to_json(), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return int(ask and not all(metric.n for metric in found.metrics.values()))


@reports_errors
def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    parser = Parser(prog="soul judge agree", description=__doc__)
    parser.add_argument("words", nargs="*", metavar="TASK | section.key=value", help="the task; settings")
    parser.add_argument("--labels", type=Path, help="a copy of published labels, or a JSONL or JSON file of your own")
    parser.add_argument("--recorded", action="store_true", help="ask nobody: use the scores recorded with the labels")
    parser.add_argument("--repeats", type=positive_int, default=1, help="number of judgments of each text")
    parser.add_argument("--expected", action="store_true", help="also ask for expected scores: one token a score")
    parser.add_argument("--seed", type=non_negative_int, default=0, help="seed for the order within pairs")
    parser.add_argument("--json", type=output_file, help="write the results here")
    args = parser.parse_args(arguments)
    task = args.words.pop(0) if args.words and "=" not in args.words[0] else None
    return asyncio.run(run(sections_of(args.words), task, args))
