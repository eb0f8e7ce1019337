"""Mistakes task files: the wrong option that a misconception leads to, one row for each labelled wrong option.

    python -m data.mistakes convert train.csv misconception_mapping.csv --rows 600 \\
        --out data/sim_eval_data/mistakes_val.parquet
    python -m data.mistakes convert train.csv misconception_mapping.csv --rows 600 \\
        --train-out data/sim_rl_data/mistakes_rl_train.parquet --val-out data/sim_eval_data/mistakes_val.parquet

Source: the Kaggle competition "Eedi - Mining Misconceptions in Mathematics" (2024): its questions, and the file that
gives each misconception's number a name. Note the competition's terms (non-commercial, as far as we know).

If several options of a question carry the same misconception, each of them is a right answer: `AcceptedOptions` holds
them all, and each has a row of its own. Questions whose options are all images are left out, because the images are not
in the files; those that describe an image in words stay, and evaluation counts them separately. (MaE, the other public
source of misconceptions, has open answers and no options, so it cannot be asked this way.)
"""

import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path

from data.builder_cli import Builder, Draw, Rows
from data.reading import read_csv
from data.rows import Record, numbered
from soul.tasks.mistakes import IMAGE

LETTERS = "ABCD"


def convert(paths: Sequence[str | Path]) -> Rows:
    """The cases of Eedi question files as `extra_info` dicts; one of the files must name the misconceptions."""
    tables = [list(read_csv(Path(path))) for path in paths]
    names = {
        _number(row["MisconceptionId"]): row["MisconceptionName"].strip()
        for rows in tables
        for _, row in rows
        if "MisconceptionName" in row
    }
    if not names:
        raise ValueError("no file has the column MisconceptionName; give misconception_mapping.csv as well")
    cases: list[Record] = []
    left_out: Counter[str] = Counter()
    for _, row in chain.from_iterable(tables):
        if "MisconceptionName" in row:
            continue
        if all(not IMAGE.sub("", row[f"Answer{letter}Text"]).strip() for letter in LETTERS):
            left_out["all options are images"] += sum(1 for _ in _labels(row))
            continue
        cases += _cases(row, names, left_out)
    return Rows(numbered(cases), left_out, notes=_notes(cases))


def _number(text: str) -> str:
    """The number of a misconception: pandas writes 1672 as "1672.0" where a column has gaps."""
    return re.sub(r"\.0+$", "", (text or "").strip())


def _cases(row: dict[str, str], names: dict[str, str], left_out: Counter[str]) -> Iterator[Record]:
    right = row["CorrectAnswer"]
    for letter, number in _labels(row):
        if letter == right:
            left_out["the option is the correct one"] += 1
        elif not names.get(number):
            left_out["the misconception has no name"] += 1
        else:
            yield {
                "id": f"{row['QuestionId']}_{letter}",
                "question_id": row["QuestionId"],
                "question": row["QuestionText"].strip(),
                **{f"Answer{option}Text": row[f"Answer{option}Text"].strip() for option in LETTERS},
                "MisconceptionId": number,
                "MisconceptionName": names[number],
                "TargetOption": letter,
                "AcceptedOptions": [other for other, same in _labels(row) if same == number and other != right],
                "TargetAnswer": row[f"Answer{letter}Text"].strip(),
                "CorrectAnswer": right,
            }


def _labels(row: dict[str, str]) -> Iterator[tuple[str, str]]:
    """(letter, number of the misconception) of each option that has one."""
    for letter in LETTERS:
        if number := _number(row.get(f"Misconception{letter}Id", "")):
            yield letter, number


def _question(record: Record) -> str:
    # By its text, as `data.check` compares them: a few questions stand in Eedi's file under two numbers.
    return " ".join(str(record["question"]).casefold().split())


def _notes(records: Sequence[Record]) -> list[str]:
    """Number of the rows read that have several right answers, or an image described in words."""
    several = sum(len(record["AcceptedOptions"]) > 1 for record in records)
    images = sum(any(IMAGE.search(str(value)) for value in record.values()) for record in records)
    return [f"rows read with several right options: {several}", f"rows read with the description of an image: {images}"]


BUILDER = Builder(
    "data.mistakes",
    __doc__,
    lambda args: convert(args.sources),
    sources="SRC.csv",
    draw=Draw("--rows", "whole questions of up to N rows", group=_question, groups="questions"),
)

if __name__ == "__main__":
    sys.exit(BUILDER.main())
