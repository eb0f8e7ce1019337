"""Hi-ToM task files: from the benchmark's own JSON (evaluation) or from newly generated stories (training).

    python -m data.hitom convert Hi-ToM_data.json --out data/sim_eval_data/hitom_val.parquet
    python -m data.hitom generate --stories 200 --out data/sim_rl_data/hitom_rl_train.parquet

Source of the records: github.com/ying-hui-he/Hi-ToM_dataset (Apache-2.0), file Hi-ToM_data.json. The
benchmark is for evaluation; training rows come from `generate` (see `data.hitom_stories`).
"""

import argparse
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from data.builder_cli import Builder, Commands, Rows, add_output_arguments, argument
from data.hitom_stories import generate_examples
from data.reading import read_records
from data.rows import Record
from soul.cli.arguments import positive_int

PROMPTING = "CoTP"  # of the two prompting types, the one without an instruction in front of the story


def convert(path: str | Path) -> Rows:
    """The records of a Hi-ToM JSON file as `extra_info` dicts, in the file's order.

    The published file asks every question twice: with the prompting type CoTP, and with VP, where an instruction stands
    in front of the story. The records of type VP are left out; the task writes its own instruction. `index` counts the
    rows of the file before filtering, `story_id` the distinct stories.
    """
    story_ids: dict[str, int] = {}
    records: list[Record] = []
    left_out: Counter[str] = Counter()
    for index, (_, item) in enumerate(read_records(Path(path))):
        prompting = item.get("prompting_type", PROMPTING)
        if prompting != PROMPTING:
            left_out[f"prompting type {prompting}: the same questions as type {PROMPTING}"] += 1
            continue
        records.append(_record(index, item, story_ids))
    return Rows(records, left_out)


def _record(index: int, item: Mapping[str, Any], story_ids: dict[str, int]) -> Record:
    # Some records end in "***" and blank lines, left over from the benchmark's own prompt files.
    lines = [line.strip() for line in item["story"].splitlines() if line.strip(" \t*")]
    story = "\n".join(lines)
    return {
        "index": index,
        "story_id": story_ids.setdefault(story, len(story_ids)),
        "story": story,
        "question": item["question"].strip(),
        "choices": item["choices"].strip(),
        "correct_answer": item["answer"].strip(),
        "deception": item["deception"],
        "story_length": item["story_length"],
        "question_order": item["question_order"],
    }


def _generate_command(commands: Commands) -> None:
    generate = commands.add_parser("generate", help="new stories -> parquet")
    generate.add_argument("--stories", type=positive_int, default=200, help="30 rows each (default 200)")
    add_output_arguments(generate)


def _rows(args: argparse.Namespace) -> Rows:
    if args.command == "convert":
        return convert(args.source)
    return Rows(generate_examples(args.stories, args.seed))


BUILDER = Builder(
    "data.hitom",
    __doc__,
    _rows,
    options=[argument("source", type=Path, metavar="SRC.json")],
    more_commands=_generate_command,
)

if __name__ == "__main__":
    sys.exit(BUILDER.main())
