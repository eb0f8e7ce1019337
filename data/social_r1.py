"""Social-R1 task files, from the files of ToMBench or of its hard version, which Social-R1 uses.

    python -m data.social_r1 convert ToMBench/data/*.jsonl --out data/sim_eval_data/social_r1_val.parquet

Source: github.com/zhchen18/ToMBench (MIT). Its authors ask to use it for evaluation only, never for training. For
ToMBench-Hard this reader takes the form that the authors of DITTO use: the text with its lettered options
(`prompt_text`, `conversations` or `prompt`), and `answer_letter` or `answer_text`.

Every record of ToMBench is in English and in Chinese; this reads the English. Questions with two options have the bare
token NaN, which Python's JSON module reads, for the other two; a few options begin with a letter of their own, and an
answer may read "A. ".
"""

import hashlib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from data.builder_cli import Builder, Rows
from data.reading import by_name, options_and_gold, read_records, required_text, row_of
from data.rows import Record, numbered
from soul.one_turn import letter_options
from soul.row_fields import clean_text, options_by_letter, user_text
from soul.tasks.social_r1 import SocialR1, SocialR1Row

_ABILITY, _ANSWER = "能力\nABILITY", "答案\nANSWER"


def convert(paths: Sequence[str | Path]) -> list[Record]:
    """The questions of ToMBench files as `extra_info` dicts, ordered by file name whatever the order of `paths`."""
    return numbered(
        {**_record(where, raw), "subtask": path.stem} for path in by_name(paths) for where, raw in read_records(path)
    )


def _record(where: str, raw: dict[str, Any]) -> Record:
    if "STORY" not in raw and user_text(raw):
        return _ready_made(where, raw)
    story, question = required_text(where, raw, "STORY"), required_text(where, raw, "QUESTION")
    given = [raw.get(f"OPTION-{letter}") for letter in "ABCD"]
    options, gold = options_and_gold(where, given, raw.get(_ANSWER), f"options or field {_ANSWER!r}")
    return {
        "question": question,
        "prompt_text": f"{story}\n\nQuestion: {question}\n{letter_options(options)}",
        "answer_letter": gold,
        "answer_text": options_by_letter(options)[gold],
        "ability": clean_text(raw.get(_ABILITY)),
        "story_id": hashlib.sha256(" ".join(story.split()).encode()).hexdigest()[:12],
    }


def _ready_made(where: str, raw: dict[str, Any]) -> Record:
    """A record whose text has its question and options already."""
    row = row_of(where, SocialR1Row, raw, SocialR1().check)
    gold = SocialR1().gold(row)
    return {
        "question": row.prompt_text,
        "prompt_text": row.prompt_text,
        "answer_letter": gold,
        "answer_text": SocialR1().options(row)[gold],
        "ability": "",
        "story_id": hashlib.sha256(" ".join(row.prompt_text.split()).encode()).hexdigest()[:12],
    }


BUILDER = Builder(
    "data.social_r1",
    __doc__,
    lambda args: Rows(convert(args.sources)),
    sources="SRC.jsonl",
)

if __name__ == "__main__":
    sys.exit(BUILDER.main())
