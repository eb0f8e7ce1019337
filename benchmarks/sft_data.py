"""Measure throughput, memory and start-up time of the data of supervised training.

    python -m benchmarks.sft_data                     # everything, minutes
    python -m benchmarks.sft_data tokenise memory     # parts

`tokenise`: tokens per second of CPU time with one thread, in turn, each time in a new process: our store from parquet,
with the spans of the trained turns, against `datasets.map` in batches with the same template and tokenizer, without any
mask. Also documents against `datasets.map` with the tokenizer alone. Goal: a ratio of 1.

`throughput`: tokens per second of our loader against `datasets` streaming (shuffle buffer of 10,000, chat template and
tokenizer in `map`), on the same rows, with the same workers and collation. The goal is a ratio of one run: at least 3.
`rows` is streaming of rows without a tokenizer: it shows how much of the gain comes from tokenising once. Tokenising
the corpus for our loader is an additional one-time cost; it is timed separately. `memory`: peak of a loader's worker,
and its growth while it reads, at 1 and 10 million rows. Goal: equal within 10 %. `start`: opening a corpus of 10
million rows in a new process with everything cached. Goal: below 2 s.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from rich.console import Console
from rich.table import Table
from torch.utils.data import DataLoader, Dataset
from transformers import PreTrainedTokenizerBase

from recipe.demo.tiny_model import build_tokenizer
from sft.corpus.batches import StepBatches
from sft.corpus.index import read_index
from sft.corpus.row_encoder import RowEncoder
from sft.corpus.settings import SftDataSettings
from sft.corpus.split import Corpus, open_corpus
from sft.corpus.store import ABOUT, IDS, RECORD, ROWS, SEQUENCES, WORD, ShardCounts, SourceCounts
from sft.corpus.tokenize import shard_folder
from soul.cli.arguments import output_file, positive_int
from soul.cli.error_border import Parser, reports_errors

SHARDS = 4
BATCH = 64
ROUNDS = 3  # of the tokenising, in turn with its contender; the median counts
SHORT = 24  # tokens per row of the large corpora
console = Console()


def words(count: int, rng: random.Random) -> list[str]:
    """Words of a made-up language, some common, most rare."""
    syllables = ["ba", "ko", "ri", "tun", "sel", "mo", "vak", "ne", "lir", "pas"]
    lexicon = ["".join(rng.choices(syllables, k=rng.randint(1, 4))) for _ in range(3000)]
    return rng.choices(lexicon, weights=[1 / (rank + 10) for rank in range(len(lexicon))], k=count)


def write_chats(folder: Path, rows: int) -> None:
    """Shards of conversations of two to eight turns, about 400 tokens each."""
    rng = random.Random(0)
    text = words(200_000, rng)  # the tokenizer was trained on a part of it
    for shard in range(SHARDS):
        records = []
        for _ in range(rows // SHARDS):
            turns = []
            for turn in range(2 * rng.randint(1, 4)):
                start, count = rng.randrange(190_000), rng.randint(20, 120)
                turns.append(
                    {"role": ("user", "assistant")[turn % 2], "content": " ".join(text[start : start + count])}
                )
            records.append({"data_source": "chats", "messages": turns})
        pq.write_table(pa.Table.from_pylist(records), folder / f"train_shard_{shard}.parquet", row_group_size=1000)


def tokenizer() -> PreTrainedTokenizerBase:
    """A small byte-level BPE."""
    text = words(40_000, random.Random(0))
    return build_tokenizer([" ".join(text[start : start + 20]) for start in range(0, len(text), 20)], vocab_size=8000)


def settings(folder: Path, workers: int = 0) -> SftDataSettings:
    """Settings of the corpora made here."""
    return SftDataSettings(
        dir=folder, cache_dir=folder / "cache", tokenizer_workers=workers, default_train_role="assistant"
    )


# ---- throughput ----


def collator() -> Callable[[list[dict[str, Any]]], Any]:
    """verl's collator, for all contenders."""
    from verl.utils.dataset.dataset_utils import SFTTensorCollator

    return SFTTensorCollator("no_padding")


def ours(corpus: Corpus, workers: int, batches: int) -> Iterator[int]:
    """Yield the tokens of each batch of our loader."""
    plan = StepBatches(corpus, BATCH, 0, 1, 0, batches)
    loader = DataLoader(
        corpus.dataset,
        batch_sampler=plan,
        num_workers=workers,
        collate_fn=collator(),
        multiprocessing_context="spawn" if workers else None,
    )
    for batch in loader:
        yield batch["input_ids"].values().numel()


def streamed(folder: Path, workers: int, chat: PreTrainedTokenizerBase | None) -> Iterator[int]:
    """Yield the tokens of each batch of `datasets` streaming; without `chat`, the number of rows."""
    import torch
    from datasets import load_dataset

    files = sorted(str(file) for file in folder.glob("*.parquet"))
    rows = load_dataset("parquet", data_files=files, split="train", streaming=True)
    rows = rows.shuffle(seed=0, buffer_size=10_000)
    if chat is not None:

        def encode(record: dict[str, Any]) -> dict[str, Any]:
            ids = chat.apply_chat_template(record["messages"], tokenize=True, return_dict=False)
            return {"input_ids": ids, "position_ids": list(range(len(ids))), "loss_mask": [1] * len(ids)}

        rows = rows.map(encode, remove_columns=["data_source", "messages"])

        def collate(items: list[dict[str, Any]]) -> Any:
            return collator()([{key: torch.tensor(value) for key, value in item.items()} for item in items])

        for batch in DataLoader(rows, batch_size=BATCH, num_workers=workers, collate_fn=collate):
            yield batch["input_ids"].values().numel()
    else:
        for items in DataLoader(rows, batch_size=BATCH, num_workers=workers, collate_fn=list):
            yield len(items)


def speed(counts: Iterator[int]) -> tuple[float, float]:
    """Seconds to the first batch, and the sum of counts per second from then on."""
    start = time.perf_counter()
    next(counts)
    first = time.perf_counter()
    total = sum(counts)
    return first - start, total / (time.perf_counter() - first)


def throughput(rows: int, workers: int) -> dict[str, float]:
    """Our loader against streaming."""
    chat = tokenizer()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_chats(folder, rows)
        start = time.perf_counter()
        corpus = open_corpus(settings(folder, workers=2), chat, "train")
        assert corpus is not None
        built = time.perf_counter() - start
        tokens = corpus.sources["chats"].tokens
        numbers: dict[str, float] = {"rows": rows, "tokens_a_row": tokens / rows, "workers": workers}
        numbers |= {"build_rows_s": rows / built, "build_tokens_s": tokens / built}
        numbers["ours_first_s"], numbers["ours_tokens_s"] = speed(ours(corpus, workers, rows // BATCH))
        numbers["stream_first_s"], numbers["stream_tokens_s"] = speed(streamed(folder, workers, chat))
        numbers["rows_first_s"], rows_s = speed(streamed(folder, workers, None))
        numbers["rows_tokens_s"] = rows_s * tokens / rows
    table = Table("loader", "first batch s", "tokens/s", title=f"{rows:,} rows, {workers} workers, batches of {BATCH}")
    for label, key in (("ours", "ours"), ("datasets streaming", "stream"), ("datasets streaming, rows alone", "rows")):
        table.add_row(label, f"{numbers[f'{key}_first_s']:.1f}", f"{numbers[f'{key}_tokens_s']:,.0f}")
    console.print(table)
    console.print(
        f"tokenising, 2 processes: {numbers['build_rows_s']:,.0f} rows/s, {numbers['build_tokens_s']:,.0f} tokens/s"
    )
    numbers["ratio"] = numbers["ours_tokens_s"] / numbers["stream_tokens_s"]
    numbers["ratio_rows"] = numbers["ours_tokens_s"] / numbers["rows_tokens_s"]
    console.print(
        f"ours / streaming: {numbers['ratio']:.1f} (goal 3); ours / rows alone: {numbers['ratio_rows']:.1f}\n"
    )
    return numbers


# ---- tokenising ----


def cpu_seconds(work: Callable[[], object]) -> float:
    """CPU time of this process, with all its threads: other programs on the machine do not count."""
    start = time.process_time()
    work()
    return time.process_time() - start


def write_documents(folder: Path, rows: int) -> None:
    """Shards of documents, about as long as the conversations."""
    rng = random.Random(1)
    text = words(200_000, rng)
    for shard in range(SHARDS):
        starts = [(rng.randrange(190_000), rng.randint(20, 800)) for _ in range(rows // SHARDS)]
        records = [{"text": " ".join(text[start : start + count])} for start, count in starts]
        pq.write_table(pa.Table.from_pylist(records), folder / f"train_shard_{shard}.parquet", row_group_size=1000)


def stored(folder: Path, _: str) -> tuple[float, int]:
    """CPU seconds and tokens of our store."""
    chat, opened = tokenizer(), list[Corpus | None]()
    seconds = cpu_seconds(lambda: opened.append(open_corpus(settings(folder), chat, "train")))
    shutil.rmtree(folder / "cache")
    assert opened[0] is not None
    return seconds, sum(counts.tokens for counts in opened[0].sources.values())


def mapped(folder: Path, column: str) -> tuple[float, int]:
    """CPU seconds and tokens of `datasets.map` in batches, written to its cache as usual."""
    from datasets import load_dataset

    chat = tokenizer()
    files = sorted(str(file) for file in folder.glob("*.parquet"))
    rows = load_dataset("parquet", data_files=files, split="train", cache_dir=str(folder / "datasets"))

    def encode(batch: dict[str, Any]) -> dict[str, Any]:
        texts = batch[column]
        if column == "messages":
            texts = [chat.apply_chat_template(messages, tokenize=False) for messages in texts]
        return {"input_ids": chat(texts, add_special_tokens=False)["input_ids"]}

    done: list[Any] = []
    seconds = cpu_seconds(lambda: done.append(rows.map(encode, batched=True, remove_columns=rows.column_names)))
    tokens = sum(map(len, done[0]["input_ids"]))
    shutil.rmtree(folder / "datasets")
    return seconds, tokens


def in_new_process(work: Callable[[Path, str], tuple[float, int]], folder: Path, column: str) -> float:
    """Tokens per second of CPU time: no contender finds the other's warm caches."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        seconds, tokens = pool.submit(work, folder, column).result()
    return tokens / seconds


def tokenising(rows: int) -> dict[str, float]:
    """Our tokenising against `datasets.map`, per core."""
    os.environ |= {"TOKENIZERS_PARALLELISM": "false", "OMP_NUM_THREADS": "1"}  # of the new processes
    numbers: dict[str, float] = {}
    table = Table("corpus", "ours, tokens/s", "datasets.map", "ratio", title=f"{rows:,} rows, CPU time of one thread")
    for corpus, column, write in (("chats", "messages", write_chats), ("documents", "text", write_documents)):
        speeds: dict[str, list[float]] = {"ours": [], "map": []}
        with tempfile.TemporaryDirectory() as name:
            write(Path(name), rows)
            for _ in range(ROUNDS):
                for label, work in (("ours", stored), ("map", mapped)):
                    speeds[label].append(in_new_process(work, Path(name), column))
        own, their = (statistics.median(speeds[label]) for label in ("ours", "map"))
        ratios = [mine / other for mine, other in zip(*speeds.values(), strict=True)]
        numbers |= {f"{corpus}_ours_tokens_s": own, f"{corpus}_map_tokens_s": their, f"{corpus}_ratio": own / their}
        shown = f"{own / their:.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
        table.add_row(corpus, f"{own:,.0f}", f"{their:,.0f}", shown)
    console.print(table)
    return numbers


# ---- memory and start ----


def write_large(folder: Path, rows: int) -> None:
    """Shards of short rows, and their tokens as the store's own files, without running a tokenizer."""
    shard_rows = rows // SHARDS
    chat = [[{"role": "user", "content": "hello"}, {"role": "assistant", "content": "how do you do"}]]
    part = pa.table({"data_source": ["large"] * 10_000, "messages": chat * 10_000})
    for shard in range(SHARDS):
        with pq.ParquetWriter(folder / f"train_shard_{shard}.parquet", part.schema) as writer:
            for _ in range(shard_rows // 10_000):
                writer.write_table(part)
    key = RowEncoder(tokenizer(), settings(folder)).key()
    files = sorted(folder.glob("train_shard_*.parquet"))
    for indexed in read_index(files, folder / "cache"):
        store = shard_folder(indexed, key, folder / "cache")
        store.mkdir(parents=True)
        records = np.zeros(shard_rows, dtype=RECORD)
        records["row"] = np.arange(shard_rows)
        records["offset"], records["length"] = records["row"].astype("<u8") * (SHORT + 2), SHORT
        records["spans"], records["trained"] = 1, SHORT // 2
        records.tofile(store / SEQUENCES)
        block = np.tile(np.array([*range(SHORT), SHORT // 2, SHORT], dtype=WORD), 10_000)
        with open(store / IDS, "wb") as file:
            for _ in range(shard_rows // 10_000):
                file.write(block.tobytes())
        np.arange(shard_rows, dtype=WORD).tofile(store / ROWS)
        tokens = shard_rows * SHORT
        large = SourceCounts(Counter(assistant=shard_rows), shard_rows, shard_rows, tokens, tokens, tokens // 2)
        ShardCounts({"large": large}, {}, shard_rows, shard_rows, shard_rows * (SHORT + 2)).write(store / ABOUT)


class Watched(Dataset):  # type: ignore[type-arg,misc,unused-ignore]
    """A dataset that returns the memory of the process that reads it."""

    def __init__(self, dataset: Dataset) -> None:  # type: ignore[type-arg,unused-ignore]
        self.dataset = dataset

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, number: int) -> tuple[int, int]:
        self.dataset[number]
        return resident_kib(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def resident_kib() -> int:
    """Resident memory of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") // 1024


def child(folder: Path, batches: int) -> None:
    """In its own process: open the corpus, read it with one worker, print time and memory."""
    chat = tokenizer()
    start = time.perf_counter()
    corpus = open_corpus(settings(folder), chat, "train")
    assert corpus is not None
    opened = time.perf_counter() - start
    plan = StepBatches(corpus, BATCH, 0, 1, 0, batches)
    loader = DataLoader(
        Watched(corpus.dataset), batch_sampler=plan, num_workers=1, collate_fn=list, multiprocessing_context="spawn"
    )
    seen = [item for batch in loader for item in batch]
    resident, peak = [now for now, _ in seen], seen[-1][1]
    print(
        json.dumps(
            {"rows": len(corpus.dataset), "open_s": opened, "peak_kib": peak, "growth_kib": max(resident) - resident[0]}
        )
    )


def large(sizes: list[int], batches: int) -> dict[str, float]:
    """Memory of a worker and time to open, by the size of the corpus."""
    numbers: dict[str, float] = {}
    table = Table(
        "rows", "open ms", "worker's peak MiB", "growth while reading MiB", title=f"{batches * BATCH:,} sequences read"
    )
    for rows in sizes:
        with tempfile.TemporaryDirectory() as name:
            write_large(Path(name), rows)
            command = [sys.executable, "-m", "benchmarks.sft_data", "--child", name, "--batches", str(batches)]
            ended = subprocess.run(
                command, capture_output=True, text=True, check=True, env={**os.environ, "OMP_NUM_THREADS": "1"}
            )
            result = json.loads(ended.stdout.splitlines()[-1])
        assert result["rows"] == rows
        numbers |= {f"open_s_{rows}": result["open_s"], f"peak_mib_{rows}": result["peak_kib"] / 1024}
        growth = numbers[f"growth_mib_{rows}"] = result["growth_kib"] / 1024
        table.add_row(
            f"{rows:,}", f"{1000 * result['open_s']:.0f}", f"{result['peak_kib'] / 1024:.1f}", f"{growth:.1f}"
        )
    console.print(table)
    numbers["peak_ratio"] = numbers[f"peak_mib_{sizes[-1]}"] / numbers[f"peak_mib_{sizes[0]}"]
    console.print(
        f"peak at {sizes[-1]:,} / {sizes[0]:,} rows: {numbers['peak_ratio']:.3f} (goal within 10 %); "
        f"open at {sizes[-1]:,} rows: {numbers[f'open_s_{sizes[-1]}']:.3f} s (goal below 2)"
    )
    return numbers


@reports_errors
def main(arguments: Sequence[str] | None = None) -> None:
    """Run the parts that the command line names."""
    parser = Parser(prog="python -m benchmarks.sft_data", description=__doc__)
    parser.add_argument(
        "parts", nargs="*", help="tokenise, throughput, memory, start (the last two are one run); all by default"
    )
    parser.add_argument("--rows", type=positive_int, default=24_000, help="rows of the corpus for throughput")
    parser.add_argument("--workers", type=positive_int, default=2)
    parser.add_argument("--batches", type=positive_int, default=3000, help="batches that the watched worker reads")
    parser.add_argument("--sizes", type=positive_int, nargs="+", default=[1_000_000, 10_000_000])
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--json", type=output_file, help="write the numbers to this file")
    args = parser.parse_args(arguments)
    if args.child:
        child(args.child, args.batches)
        return
    parts = set(args.parts) or {"tokenise", "throughput", "memory"}
    numbers: dict[str, float] = {}
    if "tokenise" in parts:
        numbers |= tokenising(args.rows)
    if "throughput" in parts:
        numbers |= throughput(args.rows, args.workers)
    if parts & {"memory", "start"}:
        numbers |= large(args.sizes, args.batches)
    if args.json:
        args.json.write_text(json.dumps(numbers, indent=2))


if __name__ == "__main__":
    sys.exit(main())
