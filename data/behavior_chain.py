"""BehaviorChain task files: what a character does next, one row for each link of a chain of behaviours.

    python -m data.behavior_chain convert finally_examples_*.json --out data/sim_eval_data/behaviorchain_val.parquet

Source: github.com/O-L1RU1/BehaviorChain (Apache-2.0), which holds the pipeline and NOT the data: its authors wait for
the books' copyright to be cleared. This reader takes the files that their pipeline writes (07_aggregation.py), for your
own books or for the benchmark once it is published.

A file is one book: profile, summaries of chapters, and a chain of examples, each with its context, the character's
behaviour and three others. As in the authors' evaluation, a row shows the summaries up to the chain's first chapter,
and the links before this one. Where the pipeline left the options unshuffled, they are shuffled by seed.
"""

import json
import random
import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from data.builder_cli import Builder, Rows
from data.reading import by_name, read_json, required_text
from data.rows import Record, numbered
from soul.row_fields import clean_text

LETTERS = "abcd"
NO_OPTIONS = "links without three other behaviours"
_QUESTION = re.compile(r"After this or in response to this, what behavior did [^?]* take\?")


def convert(paths: Sequence[str | Path], seed: int = 0) -> Rows:
    """The links of these books as `extra_info` dicts, ordered by file name."""
    left_out: Counter[str] = Counter()
    return Rows(numbered(row for path in by_name(paths) for row in _book(path, seed, left_out)), left_out)


def _book(path: Path, seed: int, left_out: Counter[str]) -> Iterator[Record]:
    book = read_json(path)
    name = required_text(str(path), book["profile"], "Name")
    known = {
        "persona_name": name,
        "profile_text": json.dumps(book["profile"], ensure_ascii=False),
        "history_truncated": list(_summaries(book)),
    }
    title = clean_text(book.get("title")) or path.stem
    chain: list[dict[str, str]] = []
    for number, example in enumerate(book["examples"]):
        where = f"{path}: link {number}"
        context = _QUESTION.sub("", required_text(where, example, "summary_refined")).strip()
        behavior = required_text(where, example, "key_behavior")
        # The first link is never asked about: there is no chain before it.
        if number and (options := _options(example, behavior, f"{path.name}:{seed}:{number}")):
            right = next(letter for letter, text in options.items() if text == behavior)
            link = {**known, "prior_chain": list(chain), "current_context": context}
            raw = {**link, "options_dict": options, "right_option_letter": right}
            raw_text = json.dumps(raw, ensure_ascii=False)
            yield {"question": context, "raw": raw_text, "group": f"{title}: {name}"}
        elif number:
            left_out[NO_OPTIONS] += 1
        chain.append({"context": context, "behavior": behavior})


def _summaries(book: Mapping[str, Any]) -> Iterator[dict[str, str]]:
    """The chapters before the chain, as the authors' evaluation cuts them."""
    summaries = book.get("summary") or []
    missing = int(book.get("chapters_len") or len(summaries)) - int(book.get("summary_len") or len(summaries))
    for chapter in summaries[: max(0, int(book.get("max_index") or 0) - missing)]:
        text = clean_text(chapter.get("chapter_content"))
        text = text.partition("Summary")[2].strip() or text  # what stands before it is the site's navigation
        yield {"chapter_num": clean_text(chapter.get("chapter_num")), "chapter_content": text}


def _options(example: Mapping[str, Any], behavior: str, seed: str) -> dict[str, str]:
    """The four options by letter; empty if the example has none."""
    shuffled = example.get("options_out_of_order")
    if isinstance(shuffled, dict) and behavior in shuffled.values():
        return {str(letter): str(text) for letter, text in shuffled.items()}
    given = [part for part in example.get("disturbance") or [] if isinstance(part, dict)]
    others = [text for part in given if (text := clean_text(part.get("behavior"))) and text != behavior]
    if len(others) < 3:
        return {}
    order = random.Random(f"behavior_chain:{seed}").sample([behavior, *others[:3]], 4)
    return dict(zip(LETTERS, order, strict=True))


BUILDER = Builder(
    "data.behavior_chain",
    __doc__,
    lambda args: convert(args.sources, args.seed),
    sources="SRC.json",
)

if __name__ == "__main__":
    sys.exit(BUILDER.main())
