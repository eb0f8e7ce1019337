"""Measure the data of supervised training: speed of tokenising and of the loader, memory, several processes at once.

    python -m benchmarks.sft_data                 # everything, minutes

`tokenise`: tokens per second of CPU time with one process, for conversations and documents. `loader`: tokens per second
of the loader without workers. `memory`: the peak of a process that tokenises and reads a JSON file of --rows rows, and
one of ten times as many. `together`: seconds in which two processes have the same eight files, and one process alone.
"""

import argparse
import json
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from transformers import PreTrainedTokenizerBase

from benchmarks.side_by_side import ROOT, console
from recipe.demo.tiny_model import build_tokenizer
from soul.cli.arguments import positive_int
from soul.cli.error_border import Parser, reports_errors

BATCH, STEPS, FILES = 64, 50, 8


def words(count: int, rng: random.Random) -> list[str]:
    """Words of a made-up language, some common, most rare."""
    syllables = ["ba", "ko", "ri", "tun", "sel", "mo", "vak", "ne", "lir", "pas"]
    lexicon = ["".join(rng.choices(syllables, k=rng.randint(1, 4))) for _ in range(3000)]
    return rng.choices(lexicon, weights=[1 / (rank + 10) for rank in range(len(lexicon))], k=count)


def made_rows(kind: str, count: int, seed: int = 0) -> list[dict[str, Any]]:
    """Conversations of two to eight turns (about 400 tokens), or documents of about that length."""
    rng = random.Random(0)
    text = words(200_000, rng)  # the tokenizer was trained on a part of it
    rng.seed(seed)

    def said(low: int, high: int) -> str:
        start = rng.randrange(190_000)
        return " ".join(text[start : start + rng.randint(low, high)])

    if kind == "documents":
        return [{"text": said(20, 800)} for _ in range(count)]
    roles = ("user", "assistant")
    return [
        {"messages": [{"role": roles[turn % 2], "content": said(20, 120)} for turn in range(2 * rng.randint(1, 4))]}
        for _ in range(count)
    ]


def write(kind: str, count: int, file: Path) -> None:
    """Write a parquet or a JSON file."""
    if file.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(made_rows(kind, count, len(file.stem))), file, row_group_size=1000)
        return
    with file.open("w") as lines:
        rows = made_rows(kind, min(count, 1000))
        lines.writelines(json.dumps(rows[number % len(rows)]) + "\n" for number in range(count))


def tokenizer() -> PreTrainedTokenizerBase:
    """A small byte-level BPE."""
    text = words(40_000, random.Random(0))
    return build_tokenizer([" ".join(text[start : start + 20]) for start in range(0, len(text), 20)], vocab_size=8000)


def child(folder: Path, files: Sequence[str]) -> None:
    """In its own process: tokenise the files, read some steps, print the numbers."""
    from sft.corpus.batches import StepBatches
    from sft.corpus.sources import SftDataSettings
    from sft.corpus.split import open_corpus

    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})  # one core: tokenising takes no further processes
    settings = SftDataSettings(train_files=list(files), cache_dir=folder / "cache", default_train_role="assistant")
    chat, began, cpu = tokenizer(), time.perf_counter(), time.process_time()
    corpus = open_corpus(settings, chat, "train")
    assert corpus is not None
    tokenised, used = time.perf_counter() - began, time.process_time() - cpu
    began, read = time.perf_counter(), 0
    for batch in StepBatches(corpus, BATCH, 0, 1, 0, STEPS):
        read += sum(len(corpus.dataset[number]["input_ids"]) for number in batch)
    loaded = time.perf_counter() - began
    tokens = sum(counts.tokens for counts in corpus.sources.values())
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"tokens_s": tokens / used, "wall_s": tokenised, "loader_s": read / loaded, "peak_mib": peak}))


def measured(folder: Path, files: Sequence[Path], processes: int = 1) -> list[dict[str, float]]:
    """The numbers of processes that open these files at once, with a new cache."""
    cache = Path(tempfile.mkdtemp(dir=folder))
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "benchmarks.sft_data", "--child", str(cache), *map(str, files)]
    running = [
        subprocess.Popen(command, env=environment, cwd=ROOT, stdout=subprocess.PIPE, text=True)
        for _ in range(processes)
    ]
    return [json.loads(process.communicate()[0].splitlines()[-1]) for process in running]


@reports_errors
def main(arguments: Sequence[str] | None = None) -> None:
    """Measure."""
    parser = Parser(prog="python -m benchmarks.sft_data", description=__doc__)
    parser.add_argument("--rows", type=positive_int, default=8000)
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("files", nargs="*", type=Path, help="files for --child")
    given = parser.parse_args(arguments)
    if given.child:
        child(given.child, [str(file) for file in given.files])
        return
    numbers: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for kind in ("chats", "documents"):
            write(kind, given.rows, file := folder / f"{kind}.parquet")
            (found,) = measured(folder, [file])
            numbers |= {f"{kind}_tokens_s": found["tokens_s"], f"{kind}_loader_tokens_s": found["loader_s"]}
        for size in (given.rows, 10 * given.rows):
            write("chats", size, file := folder / f"{size}.jsonl")
            numbers[f"peak_mib_{size}_rows"] = measured(folder, [file])[0]["peak_mib"]
        files = [folder / f"{'x' * number}.parquet" for number in range(1, FILES + 1)]
        for file in files:
            write("chats", given.rows // FILES * 2, file)
        for processes in (1, 2):
            found_all = measured(folder, files, processes)
            numbers[f"together_{processes}_s"] = max(found["wall_s"] for found in found_all)
    for label, value in numbers.items():
        console.print(f"{label:30} {value:,.1f}")


if __name__ == "__main__":
    main()
