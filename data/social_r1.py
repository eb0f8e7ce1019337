"""Social-R1 task files, from the files of ToMBench, whose hard version Social-R1 uses.

    python -m data.social_r1 convert ToMBench/data/*.jsonl --out data/sim_eval_data/social_r1_val.parquet

Source: github.com/zhchen18/ToMBench (MIT). Its authors ask to use it for evaluation only, never for training.

Every record is in English and in Chinese. Questions with two options have the bare token NaN, which Python's JSON
module reads, for the other two; a few options begin with a letter of their own, and an answer may read "A. ".
"""

import argparse
import hashlib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from data.built import Builder, Rows
from data.reading import read_json_lines
from data.rows import Record
from soul.one_turn import letter_options
from soul.rows.parsing import clean_text, gold_letter, option_texts, options_by_letter

# language -> the keys of story, question and option, and the word that introduces the question
LANGUAGES = {"en": ("STORY", "QUESTION", "OPTION-{}", "Question: "), "zh": ("故事", "问题", "选项{}", "问题：")}
_ABILITY, _ANSWER = "能力\nABILITY", "答案\nANSWER"


def convert(paths: Sequence[str | Path], language: str = "en") -> list[Record]:
    """The questions of ToMBench files as `extra_info` dicts, ordered by file name whatever the order of `paths`.

    Raises ValueError naming file, line and field.
    """
    records: list[Record] = []
    for path in sorted((Path(path) for path in paths), key=lambda path: path.name):
        for where, raw in read_json_lines(path):
            records.append({"index": len(records), **_record(where, raw, language), "subtask": path.stem})
    return records


def _record(where: str, raw: dict[str, Any], language: str) -> Record:
    story_key, question_key, option_key, introduction = LANGUAGES[language]
    story, question = (clean_text(raw.get(key)) for key in (story_key, question_key))
    if not story or not question:
        raise ValueError(f"{where}: field '{question_key if story else story_key}' is missing or empty")
    try:
        options = option_texts([raw.get(option_key.format(letter)) for letter in "ABCD"])
        gold = gold_letter(raw.get(_ANSWER), options_by_letter(options))
    except ValueError as error:
        raise ValueError(f"{where}: options or field {_ANSWER!r}: {error}") from error
    return {
        "question": question,
        "prompt_text": f"{story}\n\n{introduction}{question}\n{letter_options(options)}",
        "answer_letter": gold,
        "answer_text": options_by_letter(options)[gold],
        "ability": clean_text(raw.get(_ABILITY)),
        "story_id": hashlib.sha256(" ".join(story.split()).encode()).hexdigest()[:12],
    }


def _options(convert: argparse.ArgumentParser) -> None:
    convert.add_argument("--language", choices=sorted(LANGUAGES), default="en", help="of the texts (default en)")


def _rows(args: argparse.Namespace) -> Rows:
    return Rows(
        "social_r1",
        convert(args.sources, args.language),
        lambda record: str(record["story_id"]),
        answer_position=lambda record: ord(record["answer_letter"]) - ord("A"),
    )


BUILDER = Builder("data.social_r1", __doc__, _rows, sources="SRC.jsonl", options=_options)
build, main = BUILDER.build, BUILDER.main

if __name__ == "__main__":
    sys.exit(main())
