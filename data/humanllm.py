"""HumanLLM task files, item selection: which of these items does a user pick next?

    python -m data.humanllm convert item_selection.jsonl --out data/sim_eval_data/humanllm_val.parquet

We know of no public file with these records. This reader takes the form that the authors of DITTO use: JSON lines or
parquet with the user's history (`prompt_text`, `conversations` or `prompt`), `candidates`, and the item that the user
picked as `answer_text`, `answer_index` (from 0) or `answer_letter`.
"""

import hashlib
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from data.builder_cli import Builder, Rows
from data.reading import by_name, read_records, row_of
from data.rows import Record, numbered
from soul.tasks.humanllm import HumanLLM, HumanLLMRow


def convert(paths: Sequence[str | Path]) -> list[Record]:
    """The choices in these files as `extra_info` dicts, ordered by file name."""
    return numbered(_record(where, raw) for path in by_name(paths) for where, raw in read_records(path))


def _record(where: str, raw: Mapping[str, Any]) -> Record:
    row = row_of(where, HumanLLMRow, raw, HumanLLM().gold)
    gold = HumanLLM().gold(row)
    place = ord(gold) - ord("A")
    return {
        "question": row.history,
        "history": row.history,
        "candidates": list(row.candidates),
        "answer_index": place,
        "answer_letter": gold,
        "answer_text": list(row.candidates)[place],
        "group": hashlib.sha256(row.history.encode()).hexdigest()[:16],  # one user may have several choices
    }


BUILDER = Builder(
    "data.humanllm",
    __doc__,
    lambda args: Rows(convert(args.sources)),
    sources="SRC",
)

if __name__ == "__main__":
    sys.exit(BUILDER.main())
