"""SocSci210 task files: how a participant of a social science experiment answered a question.

    python -m data.socsci210 convert data/*.parquet participant_mapping.json --part unseen --rows 500 --out FILE

Source: huggingface.co/datasets/socratesft/SocSci210 (no licence is stated): 2.9 million answers with the columns
study_id, condition_num, task_num, prompt and response, and metadata/participant_mapping.json, whose list "unseen" names
the studies that the authors evaluate. JSON lines with these fields are read as well.

The records do not say what a question's scale is. It is taken from the points that the prompt names ("1 = not at all")
and from all answers to the question. A scale with two points is binary, any other ordinal: categorical questions cannot
be told apart from ordinal ones unless a record has the field `response_type`. The files are read twice, row by row.
"""

import math
import random
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from data.builder_cli import Builder, Rows, argument
from data.reading import read_json, read_records
from data.rows import Record, numbered
from soul.cli.arguments import positive_int
from soul.tasks.socsci210 import labels_in

Part = Literal["seen", "unseen", "all"]
Scales = dict[tuple[str, str], tuple[float, float]]  # study and number of a question -> lowest and highest answer
NO_NUMBER = "answers that are no number"
ONE_ANSWER = "answers to questions that everybody answered alike"


def convert(paths: Sequence[str | Path], part: Part = "all", rows: int | None = None, seed: int = 0) -> Rows:
    """Answers of a part of the studies as `extra_info` dicts, `rows` of them drawn by seed, in the files' order."""
    mappings = [Path(path) for path in paths if Path(path).name.startswith("participant_mapping")]
    files = [Path(path) for path in paths if Path(path) not in mappings]
    unseen = {str(name) for path in mappings for name in read_json(path)["unseen"]}
    if part != "all" and not unseen:
        raise ValueError("--part needs participant_mapping.json, which names the studies that the authors evaluate")

    def wanted(raw: Mapping[str, Any]) -> bool:
        return part == "all" or (str(raw["study_id"]) in unseen) == (part == "unseen")

    scales: Scales = {}
    for raw in _records(files):
        if (value := _number(raw["response"])) is not None:
            key = (str(raw["study_id"]), str(raw["task_num"]))
            low, high = scales.get(key) or _named(str(raw["prompt"])) or (value, value)
            scales[key] = (min(low, value), max(high, value))
    left_out: Counter[str] = Counter()
    rng = random.Random(f"socsci210:{seed}")
    # Reservoir sampling: every answer has the same chance, and only those that are drawn are in memory.
    drawn: list[tuple[int, Record]] = []
    seen = 0
    for number, raw in enumerate(_records(files)):
        if not wanted(raw):
            left_out[f"answers of studies that are {'not ' if part == 'unseen' else ''}evaluated"] += 1
            continue
        if (record := _record(raw, scales, left_out)) is None:
            continue
        seen += 1
        if rows is None or len(drawn) < rows:
            drawn.append((number, record))
        elif (place := rng.randrange(seen)) < rows:
            drawn[place] = (number, record)
    left_out["answers that are not drawn (--rows)"] = seen - len(drawn)
    return Rows(numbered(record for _, record in sorted(drawn, key=lambda one: one[0])), +left_out)


def _records(files: Sequence[Path]) -> Iterator[Mapping[str, Any]]:
    return (raw for path in files for _, raw in read_records(path))


def _number(value: Any) -> float | None:
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return number if math.isfinite(number) else None


def _named(prompt: str) -> tuple[float, float] | None:
    """The lowest and the highest point that a prompt names."""
    points = labels_in(prompt)
    return (float(min(points)), float(max(points))) if len(points) > 1 else None


def _record(raw: Mapping[str, Any], scales: Scales, left_out: Counter[str]) -> Record | None:
    value = _number(raw["response"])
    if value is None:
        left_out[NO_NUMBER] += 1
        return None
    low, high = scales[str(raw["study_id"]), str(raw["task_num"])]
    if low == high:
        left_out[ONE_ANSWER] += 1
        return None
    return {
        "question": str(raw["prompt"]),
        "prompt_text": str(raw["prompt"]),
        "response": value,
        "response_type": str(raw.get("response_type") or ("binary" if high - low == 1 else "ordinal")),
        "r_min": low,
        "r_max": high,
        "study_id": str(raw["study_id"]),
    }


BUILDER = Builder(
    "data.socsci210",
    __doc__,
    lambda args: convert(args.sources, args.part, args.rows, args.seed),
    sources="SRC",
    options=[
        argument("--part", choices=("seen", "unseen", "all"), default="all", help="which studies (default all)"),
        argument("--rows", type=positive_int, metavar="N", help="draw N answers by seed (default all)"),
    ],
)

if __name__ == "__main__":
    sys.exit(BUILDER.main())
