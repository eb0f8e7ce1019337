"""AlignX task files: a post, two responses, and what is known of the user who preferred one of them.

    python -m data.alignx convert P-Soups/*.json --set alignx_pair --out data/sim_eval_data/alignx_pair_val.parquet

Sources: github.com/JinaLeejnl/AlignX, benchmark/P-Soups (no licence), and files in AlignX's own format (prompt,
chosen, rejected, Demographic Information, User-Generated Content, Pair-wise Comparative Feedback). `--set` names the
evaluation set, which determines what its rows hold about the user.

In P-Soups, some preferred responses consist of a zero-width space. `ground_truth_persona` states the user's preference
in plain words, and some responses repeat it. Blank responses and example pairs that repeat the preference are left out
and counted, and the field itself is never copied.
"""

import json
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from data.built import Builder, Rows, argument
from data.reading import by_name, read_json
from data.rows import Record
from soul.row_fields import clean_text, to_prose
from soul.tasks.alignx import AlignX, AlignXRow

_DEMOGRAPHIC, _PAIRS, _COMMENTS = "Demographic Information", "Pair-wise Comparative Feedback", "User-Generated Content"
# What the rows of each set hold about the user, and how many pairs and comments they show.
_EVERYTHING = ("demographic", "profile", "icl_pairs", "ugc")
SETS: dict[str, tuple[tuple[str, ...], int]] = {
    "alignx": (_EVERYTHING, 2),
    "alignx_demo": (("demographic", "profile"), 0),
    "alignx_pair": (("icl_pairs",), 4),
    "alignx_ugc": (("ugc",), 4),
    "alignx_arbitrary": (_EVERYTHING, 2),
    "alignx_history16": (("icl_pairs", "ugc"), 16),
}


def convert(paths: Sequence[str | Path], name: str = "alignx") -> Rows:
    """The records of AlignX files as `extra_info` dicts, ordered by file name whatever the order of `paths`.

    Raises ValueError naming file, record (1 = first) and field.
    """
    records: list[Record] = []
    left_out: Counter[str] = Counter()
    removed: Counter[str] = Counter()
    for path in by_name(paths):
        content = read_json(path)
        if not isinstance(content, list):
            raise ValueError(f"{path}: expected a list of records, got {type(content).__name__}")
        for number, raw in enumerate(content, start=1):
            where = f"{path}: record {number}"
            if not isinstance(raw, dict):
                raise ValueError(f"{where}: expected an object, got {type(raw).__name__}")
            record = _record(where, raw, name, removed)
            if record is None:
                left_out["a blank response, or twice the same"] += 1
            else:
                records.append({"index": len(records), **record, "source": f"{path.stem}:{number}"})
    return Rows(records, left_out, removed, task=name)


def _record(where: str, raw: dict[str, Any], name: str, removed: Counter[str]) -> Record | None:
    post, chosen, rejected = (clean_text(raw.get(key)) for key in ("prompt", "chosen", "rejected"))
    if not post:
        raise ValueError(f"{where}: field 'prompt' is missing or empty")
    if not chosen or not rejected or chosen == rejected:
        return None
    pairs = _entries(where, raw, _PAIRS, ("chosen", "rejected"), removed)
    comments = _entries(where, raw, _COMMENTS, ("comment",), removed)
    # A pair with this post and this preferred response would give the answer away.
    other = [pair for pair in pairs if (pair["prompt"], pair["chosen"]) != (post, chosen)]
    removed["pairs that are the question itself"] += len(pairs) - len(other)
    persona = clean_text(raw.get("ground_truth_persona")).rstrip(".").lower()
    known = [pair for pair in other if not persona or persona not in f"{pair['chosen']} {pair['rejected']}".lower()]
    removed["pairs that repeat the user's preference in words"] += len(other) - len(known)
    holds, count = SETS[name]
    return {
        "question": post,
        "raw_prompt": post,
        "chosen": chosen,
        "rejected": rejected,
        "demographic": to_prose(raw.get(_DEMOGRAPHIC)) if "demographic" in holds else "",
        "profile": to_prose(raw.get("profile")) if "profile" in holds else "",
        "icl_pairs": json.dumps(known if "icl_pairs" in holds else [], ensure_ascii=False),
        "ugc": json.dumps(comments if "ugc" in holds else [], ensure_ascii=False),
        "n_icl": count,
        "n_ugc": count,
    }


def _entries(
    where: str, raw: dict[str, Any], field: str, needed: tuple[str, ...], removed: Counter[str]
) -> list[dict[str, str]]:
    """The pairs or comments without a blank text."""
    entries = raw.get(field) or []
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise ValueError(f"{where}: field '{field}' must be a list of objects")
    texts = [{key: clean_text(entry.get(key)) for key in ("prompt", *needed)} for entry in entries]
    kept = [entry for entry in texts if all(entry[key] for key in needed)]
    removed["pairs and comments with a blank text"] += len(texts) - len(kept)
    return kept


BUILDER = Builder(
    "data.alignx",
    __doc__,
    lambda args: convert(args.sources, args.set),
    group="question",
    groups="posts",
    answer_letter=lambda record: AlignX().gold(AlignXRow.model_validate(record)),
    sources="SRC.json",
    options=[argument("--set", choices=sorted(SETS), default="alignx", help="evaluation set (default alignx)")],
)
build, main = BUILDER.build, BUILDER.main

if __name__ == "__main__":
    sys.exit(main())
