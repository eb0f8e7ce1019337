"""AlignX task files: a post, two responses, and what is known of the user who preferred one of them.

    python -m data.alignx convert Reddit_UGC.json --set alignx_ugc --out data/sim_eval_data/alignx_ugc_val.parquet

Sources: AlignX-test (huggingface.co/datasets/JinaLeejnl/AlignX-test), one file for each set, and P-Soups
(github.com/JinaLeejnl/AlignX, benchmark/P-Soups, no licence). A record holds prompt, chosen, rejected, and of the user
Demographic Information, profile, User-Generated Content, Pair-wise Comparative Feedback. `--set` names the evaluation
set, which determines what its rows hold about the user. A record without any of that is left out and counted.

In P-Soups, some preferred responses consist of a zero-width space. `ground_truth_persona` states the user's preference
in plain words, and some responses repeat it. Blank responses and example pairs that repeat the preference are left out
and counted, and the field itself is never copied.
"""

import json
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from data.builder_cli import Builder, Rows, argument
from data.reading import by_name, read_records
from data.rows import Record
from soul.row_fields import clean_text, to_prose

_DEMOGRAPHIC, _PAIRS, _COMMENTS = "Demographic Information", "Pair-wise Comparative Feedback", "User-Generated Content"
_WORDS = {"description": "a description of the user", "icl_pairs": "earlier choices", "ugc": "earlier comments"}
# What each set is about, of which a row needs one, and how many pairs and comments its rows show. All rows have the
# description that the record holds, as in the original.
SETS: dict[str, tuple[tuple[str, ...], int]] = {
    "alignx": (("description", "icl_pairs", "ugc"), 2),
    "alignx_demo": (("description",), 0),
    "alignx_pair": (("icl_pairs",), 4),
    "alignx_ugc": (("ugc",), 4),
    "alignx_arbitrary": (("description", "icl_pairs", "ugc"), 2),
    "alignx_history16": (("icl_pairs", "ugc"), 16),
}


def convert(paths: Sequence[str | Path], name: str = "alignx") -> Rows:
    """The records of AlignX files as `extra_info` dicts, ordered by file name whatever the order of `paths`."""
    records: list[Record] = []
    left_out: Counter[str] = Counter()
    removed: Counter[str] = Counter()
    without = f"without {' or '.join(_WORDS[what] for what in SETS[name][0])}"
    for path in by_name(paths):
        for number, (_, raw) in enumerate(read_records(path), start=1):
            record = _record(raw, name, removed)
            if record is None:
                left_out["a blank response, or twice the same"] += 1
            elif not _tells_about_the_user(record, name):
                left_out[without] += 1
            else:
                records.append({"index": len(records), **record, "source": f"{path.stem}:{number}"})
    return Rows(records, left_out, removed, task=name)


def _tells_about_the_user(record: Record, name: str) -> bool:
    """Return True if a row holds one of the things that its set is about."""
    held = {
        "description": record["demographic"] or record["profile"],
        "icl_pairs": record["icl_pairs"] != "[]",
        "ugc": record["ugc"] != "[]",
    }
    return any(held[what] for what in SETS[name][0])


def _record(raw: Mapping[str, Any], name: str, removed: Counter[str]) -> Record | None:
    post, chosen, rejected = (clean_text(raw.get(key)) for key in ("prompt", "chosen", "rejected"))
    if not chosen or not rejected or chosen == rejected:
        return None
    pairs = _entries(raw, _PAIRS, ("chosen", "rejected"), removed)
    comments = _entries(raw, _COMMENTS, ("comment",), removed)
    # A pair with this post and this preferred response would give the answer away.
    other = [pair for pair in pairs if (pair["prompt"], pair["chosen"]) != (post, chosen)]
    removed["pairs that are the question itself"] += len(pairs) - len(other)
    persona = clean_text(raw.get("ground_truth_persona")).rstrip(".").lower()
    known = [pair for pair in other if not persona or persona not in f"{pair['chosen']} {pair['rejected']}".lower()]
    removed["pairs that repeat the user's preference in words"] += len(other) - len(known)
    about, count = SETS[name]
    return {
        "question": post,
        "raw_prompt": post,
        "chosen": chosen,
        "rejected": rejected,
        "demographic": to_prose(raw.get(_DEMOGRAPHIC)),
        "profile": to_prose(raw.get("profile")),
        "icl_pairs": json.dumps(known if "icl_pairs" in about else [], ensure_ascii=False),
        "ugc": json.dumps(comments if "ugc" in about else [], ensure_ascii=False),
        "n_icl": count,
        "n_ugc": count,
    }


def _entries(
    raw: Mapping[str, Any], field: str, needed: tuple[str, ...], removed: Counter[str]
) -> list[dict[str, str]]:
    """The pairs or comments without a blank text."""
    texts = [{key: clean_text(entry.get(key)) for key in ("prompt", *needed)} for entry in raw.get(field) or []]
    kept = [entry for entry in texts if all(entry[key] for key in needed)]
    removed["pairs and comments with a blank text"] += len(texts) - len(kept)
    return kept


BUILDER = Builder(
    "data.alignx",
    __doc__,
    lambda args: convert(args.sources, args.set),
    sources="SRC.json",
    options=[argument("--set", choices=sorted(SETS), default="alignx", help="evaluation set (default alignx)")],
)

if __name__ == "__main__":
    sys.exit(BUILDER.main())
