"""Humanual task files from records of posts and the replies that people wrote.

    python -m data.humanual convert SRC... --set opinion --out data/sim_eval_data/humanual_opinion_val.parquet

A source is a .parquet, .json or .jsonl file with the columns of the Humanual sets (snap-stanford/humanual-* on Hugging
Face): `prompt` (chat messages, their JSON, or a text), `completion` (what the person wrote), `persona`, `post_id`,
`user_id`. Fetch them yourself: the texts belong to their sources (YouTube, Amazon, Reddit, Medium, WildChat, Enron).
"""

import hashlib
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from data.builder_cli import Builder, Rows, argument
from data.reading import read_records, row_of
from data.rows import Record
from soul.tasks.humanual import HumanualRow

SETS = ("book", "chat", "email", "news", "opinion", "politics")


def convert(paths: Sequence[str | Path], dataset: str = "") -> list[Record]:
    """The records of Humanual files as `extra_info` dicts, in the order of the files."""
    raw_records = [found for path in paths for found in read_records(Path(path))]
    return [_record(where, index, raw, dataset) for index, (where, raw) in enumerate(raw_records)]


def _record(where: str, index: int, raw: Mapping[str, Any], dataset: str) -> Record:
    row = row_of(where, HumanualRow, {**raw, "prompt": _with_speakers(raw), "id": ""})
    post = str(raw.get("post_id") or hashlib.sha256(row.prompt.encode()).hexdigest()[:12])
    return {
        "index": index,
        "prompt": row.prompt,
        "question": row.prompt,
        "persona": row.persona,
        "completion": row.completion,
        "dataset": dataset and f"humanual-{dataset}",
        "category": row.category,
        "id": str(raw.get("id") or f"{post}:{raw.get('user_id') or index}"),
        "post": post,
    }


def _with_speakers(raw: Mapping[str, Any]) -> Any:
    """The prompt, with the user ids of a thread replaced: the person to be played becomes "you", others get numbers."""
    prompt = raw["prompt"]
    if isinstance(prompt, str) and prompt.lstrip().startswith("["):
        try:
            prompt = json.loads(prompt)
        except ValueError:
            return prompt  # a text that begins with a bracket
    if not isinstance(prompt, list) or not all(isinstance(message, Mapping) for message in prompt):
        return prompt
    names = {"assistant": "assistant", "user": "user", "system": "system"}
    if raw.get("user_id"):
        names[str(raw["user_id"])] = "you"
    messages = []
    for message in prompt:
        role = str(message.get("role") or "")
        if role not in names:
            names[role] = f"person {1 + sum(name.startswith('person ') for name in names.values())}"
        messages.append({"role": names[role], "content": message.get("content")})
    return messages


BUILDER = Builder(
    "data.humanual",
    __doc__,
    lambda args: Rows(
        convert(args.sources, args.dataset),
        task=f"humanual-{args.dataset}" if args.dataset else "humanual",
    ),
    sources="SRC",
    options=[argument("--set", choices=SETS, default="", dest="dataset", help="which of the six sets it is")],
)

if __name__ == "__main__":
    sys.exit(BUILDER.main())
