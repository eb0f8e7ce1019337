"""Small corpora on disk for the tests."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from sft.corpus.sources import SftDataSettings
from sft.corpus.split import Corpus, open_corpus
from tests.sft.encode.templates import tokenizer_with


def row(number: int, source: str = "mine", turns: int = 2) -> dict[str, Any]:
    """A conversation whose texts tell its number."""
    said = [("user", "assistant")[turn % 2] for turn in range(turns)]
    return {
        "data_source": source,
        "messages": [
            {"role": role, "content": f"{number} {turn} " + "hello " * (number % 7)} for turn, role in enumerate(said)
        ],
    }


def write(path: Path, rows: Sequence[dict[str, Any]], group: int | None = None) -> Path:
    """A parquet file of these rows, with row groups of a size."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(list(rows)), path, row_group_size=group or max(1, len(rows)))
    return path


def settings(folder: Path, **changes: Any) -> SftDataSettings:
    """Settings for files in a folder."""
    usual = {"cache_dir": folder / "cache", "dir": folder, "default_train_role": "assistant"}
    return SftDataSettings(**{**usual, **changes})


def opened(folder: Path, split: str = "train", template: str = "plain", **changes: Any) -> Corpus:
    """An open corpus."""
    corpus = open_corpus(settings(folder, **changes), tokenizer_with(template), split)
    assert corpus is not None
    return corpus


def texts(corpus: Corpus) -> list[str]:
    """Every sequence of a corpus as text, in the order of their numbers."""
    tokenizer = tokenizer_with("plain")
    return [tokenizer.decode(corpus.dataset[number]["input_ids"]) for number in range(len(corpus.dataset))]
