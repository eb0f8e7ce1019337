"""MirrorBench task files from the benchmark's mirror files, one conversation a row.

    python -m data.mirrorbench convert *_mirror.jsonl --out data/sim_eval_data/mirrorbench_val.parquet

Source: github.com/SAP/mirrorbench, scratch_pad/data (Apache-2.0). The conversations come from OASST1 (Apache-2.0),
Chatbot Arena (prompts CC BY 4.0, model answers CC BY-NC 4.0), Qulac (MIT) and ClariQ (no licence): not for commercial
use. Some users of Chatbot Arena are offensive.

A row keeps the description of the user, and the roles and texts of the turns. The rest of a record would reveal the
real user's words: its `few_shot_user_examples` are chosen by similarity to them, and some are equal.
"""

import hashlib
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from data.builder_cli import Builder, Rows
from data.reading import by_name, read_json_lines, required_text
from data.rows import Record, numbered


def convert(paths: Sequence[str | Path]) -> list[Record]:
    """The conversations of the files as `extra_info` dicts, ordered by file name whatever the order of `paths`.

    `group` names what must not be on both sides of a split: the search topic, which Qulac and ClariQ share, or the
    opening message.
    """
    return numbered(fields_of(where, raw) for path in by_name(paths) for where, raw in read_json_lines(path))


def fields_of(where: str, raw: Mapping[str, Any]) -> Record:
    """The fields of a row, from a record in the form of the mirror files."""
    texts = {name: required_text(where, raw, name) for name in ("task_description", "dataset", "conversation_id")}
    turns = [{"role": turn["role"], "content": turn["content"]} for turn in raw["turns"]]
    return {
        "question": texts["task_description"],
        **texts,
        "turns": json.dumps(turns, ensure_ascii=False),
        "group": _group(raw.get("metadata"), next((turn["content"] for turn in turns if turn["role"] == "user"), "")),
    }


def _group(metadata: Any, opening: str) -> str:
    topic = metadata.get("topic_id") if isinstance(metadata, dict) else None
    if topic is not None:
        return f"topic-{topic}"
    return hashlib.sha256(" ".join(opening.lower().split()).encode()).hexdigest()[:12]


BUILDER = Builder("data.mirrorbench", __doc__, lambda args: Rows(convert(args.sources)), sources="SRC_mirror.jsonl")

if __name__ == "__main__":
    sys.exit(BUILDER.main())
