"""FanToM task files from the official file, or questions about beliefs from the CSV files of the AutoToM repository.

    python -m data.fantom convert fantom_v1.json --test-conversations 18 --out data/sim_eval_data/fantom_val.parquet
    python -m data.fantom convert fantom_v1.json --test-conversations 18 \\
        --train-out data/sim_rl_data/fantom_rl_train.parquet --val-out data/sim_eval_data/fantom_val.parquet
    python -m data.fantom convert FANToM_tom_belief_*.csv --out beliefs.parquet

Source: FanToM (github.com/skywalker023/fantom, MIT), "only for evaluation purposes". The official file holds all scored
questions, 10,422 of them (`data.fantom_json`). The paper's test set is 18 of its conversations; the paper does not name
them, so --seed draws them here, and the rest is training data. All questions about a conversation stay on one side,
including those about its short excerpts.

The CSV files (github.com/SCAI-JHU/AutoToM, Apache-2.0, benchmarks/full_data_formatted) hold 15 % of the questions, all
about beliefs. A file's name states what its rows do not: first or second order, and whether the person asked about
could have heard the information. In these files the right answer is always the first choice, so choices are shuffled.
"""

import argparse
import hashlib
import random
import re
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from data import fantom_json
from data.builder_cli import Builder, Rows, argument, draw_argument
from data.reading import by_name, read_csv, text_list
from data.rows import Record
from soul.tasks.fantom import TELLING_LINE

_NAME = re.compile(r"tom[_:]belief[_:](accessible|inaccessible)_.*(first-order|second-order)\.csv$")


def convert(paths: Sequence[str | Path], seed: int = 0) -> list[Record]:
    """The rows of FanToM CSV files as `extra_info` dicts, ordered by file name whatever the order of `paths`.

    The place of the right answer depends only on (seed, file name, row in that file), not on the order of the
    files or on which other files are given. `set_id` names the conversation (see
    `conversation_ids`). Raises ValueError naming file, row (1 = first data row) and field.
    """
    files = by_name(paths)
    names = [path.name for path in files]
    if len(set(names)) < len(names):
        raise ValueError(f"the same file name is given twice: {names}; give each FanToM file once")
    records: list[Record] = []
    for path in files:
        matched = _NAME.search(path.name)
        if not matched:
            raise ValueError(
                f"{path}: the file name must tell accessibility and order, as the published one does: "
                "FANToM_tom_belief_inaccessible_short_context_first-order.csv"
            )
        for number, (where, raw) in enumerate(read_csv(path), start=1):
            rng = random.Random(f"fantom:{seed}:{path.name.replace(':', '_')}:{number}")
            records.append({"index": len(records), **_fields(where, raw, rng), **_kind(*matched.groups())})
    set_ids = conversation_ids([record["context"] for record in records])
    return [{**record, "set_id": set_ids[record["context"]]} for record in records]


def conversation_ids(contexts: Sequence[str]) -> dict[str, str]:
    """Context -> id of its conversation: 12 hex digits, made from the opening line.

    The files hold overlapping excerpts of one conversation, most with the same start and different ends.
    Excerpts that share a long line are one conversation, and take the smallest of their ids.
    """
    ids = {context: hashlib.sha256(context.split("\n")[0].encode()).hexdigest()[:12] for context in contexts}
    sharing: dict[str, list[str]] = {}
    for context in ids:
        for line in context.split("\n"):
            if len(line) >= TELLING_LINE:
                sharing.setdefault(line, []).append(context)
    changed = True
    while changed:  # the smallest id spreads along chains of overlapping excerpts: two or three rounds
        changed = False
        for group in sharing.values():
            smallest = min(ids[context] for context in group)
            for context in group:
                changed = changed or ids[context] != smallest
                ids[context] = smallest
    return ids


def _kind(accessibility: str, order: str) -> Record:
    return {
        "question_type": f"tom:belief:{accessibility}:multiple-choice",
        "tom_type": order,
        "missed_info_accessibility": accessibility,
    }


def _fields(where: str, raw: dict[str, str], rng: random.Random) -> Record:
    choices = text_list(where, raw, "answer_choices")
    if len(choices) != 2 or choices.count(raw["gt_answer"]) != 1:
        raise ValueError(
            f"{where}: 'answer_choices' must be two texts, one of them the 'gt_answer', got {choices!r:.99}"
        )
    wrong = next(choice for choice in choices if choice != raw["gt_answer"])
    rng.shuffle(choices)
    return {
        "context": raw["context"],
        "question": raw["question"],
        "answer_choices": choices,
        "correct_answer": choices.index(raw["gt_answer"]),
        "wrong_answer": wrong,
    }


def _rows(args: argparse.Namespace) -> Rows:
    official = [path for path in args.sources if path.suffix == ".json"]
    if official and len(args.sources) > 1:
        raise ValueError("give fantom_v1.json alone, or CSV files: the questions of the CSVs are all in the JSON file")
    if not official and args.context == "full":
        raise ValueError("--context is for fantom_v1.json; the CSV files of full contexts have it in their names")
    if official:
        rows = fantom_json.convert(official[0], args.seed, args.context)
    else:
        rows = Rows(convert(args.sources, args.seed), notes=["the CSV files hold questions about beliefs only"])
    return rows._replace(notes=[_kinds(rows.records), *rows.notes], draw_groups=args.test_conversations)


def _kinds(records: Sequence[Record]) -> str:
    """A note with the number of questions of each kind."""
    counts = Counter(str(record["question_type"]).removeprefix("tom:") for record in records)
    return "questions read: " + ", ".join(f"{count} {kind}" for kind, count in sorted(counts.items()))


BUILDER = Builder(
    "data.fantom",
    __doc__,
    _rows,
    group=lambda record: fantom_json.conversation(str(record["set_id"])),
    groups="conversations",
    sources="fantom_v1.json | SRC.csv",
    options=[
        draw_argument("--test-conversations", "N whole conversations (paper: 18)"),
        argument(
            "--context",
            choices=("short", "full"),
            default="short",
            help="of the official file: the excerpt, or everything",
        ),
    ],
)
build, main = BUILDER.build, BUILDER.main

if __name__ == "__main__":
    sys.exit(main())
