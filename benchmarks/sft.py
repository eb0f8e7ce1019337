"""Compare supervised training on this CPU with a hand-written loop, on the same data and model.

    python -m benchmarks.sft            # minutes
    python -m benchmarks.sft --sizes 1M --rounds 1

Both run in a process of their own with one thread, take the same sequences (tokenised once, by our code) in steps of
the same number of tokens, and optimize the same model with AdamW in float32. The loop sorts sequences by length, pads
them, and makes one backward pass per micro-batch. They take turns; rates are medians over the steps of all rounds,
without the first two of each. For data loading see `python -m benchmarks.sft_data`.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.sft_data import tokenizer, write
from benchmarks.side_by_side import ROOT, console, in_turns, new_table, output_of
from soul.cli.arguments import positive_int
from soul.cli.error_border import Parser, reports_errors

WARM = 2  # steps that are not counted
CONTEXT = 512  # maximum tokens of a sequence
GOAL = 0.95  # of the hand-written loop's rate
SIZES = {"1M": (128, 4, 14, 32), "100M": (768, 12, 7, 8)}  # hidden size, layers, steps, sequences per step
Pair = tuple[list[int], list[int]]  # ids and trained positions of a sequence


def make(folder: Path, size: str) -> None:
    """A random Qwen3 of that size with a tokenizer, and a corpus of conversations."""
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    hidden, layers, steps, batch = SIZES[size]
    tok = tokenizer()
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=-(-len(tok) // 64) * 64,
        hidden_size=hidden,
        intermediate_size=3 * hidden,
        num_hidden_layers=layers,
        num_attention_heads=hidden // 64,
        num_key_value_heads=hidden // 64,
        head_dim=64,
        max_position_embeddings=2048,
        tie_word_embeddings=True,
        eos_token_id=tok.eos_token_id,
        pad_token_id=tok.pad_token_id,
    )
    Qwen3ForCausalLM(config).float().save_pretrained(folder / "model")
    tok.save_pretrained(folder / "model")
    write("chats", steps * batch, folder / "train_shard_0.parquet")


def settings_words(folder: Path, size: str) -> list[str]:
    """The overrides of our own command."""
    _, _, steps, batch = SIZES[size]
    return [
        *("platform=cpu", f"data.dir={folder}", "data.default_train_role=assistant", f"model.path={folder}/model"),
        *(f"data.max_prompt_length={CONTEXT - 100}", "data.max_response_length=100", "data.overlong=truncate"),
        *(f"data.train_batch_size={batch}", "data.max_token_len_per_gpu=2048", f"run.dir={folder}/ours"),
        *(f"trainer.total_training_steps={steps}", "trainer.save_freq=-1", "trainer.test_freq=-1"),
        *("optim.lr=1e-4", "optim.lr_warmup_steps=0", "trainer.logger=[]"),
    ]


def ours(folder: Path, size: str) -> list[float]:
    """Run our trainer as a process of torchrun does; its metrics hold the rate of every step."""
    from sft.launch import WORKER, main
    from sft.run.ranks import RESUME_VARIABLE
    from sft.run.stop import LAUNCHER_VARIABLE

    os.environ |= {RESUME_VARIABLE: "", LAUNCHER_VARIABLE: str(os.getppid())}  # start at step 1, end with this program
    assert main([WORKER, *settings_words(folder, size)]) == 0
    return [json.loads(line)["perf/tokens_per_second"] for line in (folder / "ours" / "metrics.jsonl").open()]


def sequences_of(folder: Path, size: str) -> list[list[Pair]]:
    """The steps of our order."""
    from sft.launch import config_of
    from sft.preflight import load_corpora

    _, _, steps, batch = SIZES[size]
    corpus, _ = load_corpora(config_of(settings_words(folder, size)))
    numbers = (corpus.dataset.row_sequences(corpus.order.step(step, batch)).tolist() for step in range(steps))
    read = ([corpus.dataset[number] for number in step] for step in numbers)
    return [[(one["input_ids"].tolist(), one["loss_mask"].tolist()) for one in step] for step in read]


def by_hand(folder: Path, size: str) -> list[float]:
    """A loop that is written for this model only."""
    import torch
    from torch.nn.functional import cross_entropy
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder / "model", dtype=torch.float32, attn_implementation="sdpa")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    rates = []
    for sequences in sequences_of(folder, size):
        start = time.perf_counter()
        total = sum(sum(mask) for _, mask in sequences)
        for batch in micro_batches(sequences):
            width = max(len(ids) for ids, _ in batch)
            ids = torch.tensor([ids + [0] * (width - len(ids)) for ids, _ in batch])
            mask = torch.tensor([mask + [0] * (width - len(mask)) for _, mask in batch])
            seen = torch.tensor([[1] * len(ids) + [0] * (width - len(ids)) for ids, _ in batch])
            logits = model(input_ids=ids, attention_mask=seen, use_cache=False).logits[:, :-1]
            trained = mask[:, 1:].bool()
            loss = cross_entropy(logits[trained].float(), ids[:, 1:][trained], reduction="sum") / total
            loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        rates.append(sum(len(ids) for ids, _ in sequences) / (time.perf_counter() - start))
    return rates


def micro_batches(sequences: Sequence[Pair]) -> list[list[Pair]]:
    """Sequences of similar length together, up to 2,048 tokens with their padding."""
    batches: list[list[Pair]] = []
    for sequence in sorted(sequences, key=lambda pair: -len(pair[0])):
        if not batches or (len(batches[-1]) + 1) * len(batches[-1][0][0]) > 2048:
            batches.append([])
        batches[-1].append(sequence)
    return batches


def run(name: str, folder: str, size: str) -> list[float]:
    """Run a contender. Returns the rates that it prints: tokens per second of each step."""
    rank = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29517"}
    variables = {**rank, "OMP_NUM_THREADS": "1", "VERL_PLATFORM": "cpu", "PYTHONPATH": str(ROOT)}
    words = ["-m", "benchmarks.sft", "--contender", name, "--folder", folder, "--sizes", size]
    rates: list[float] = json.loads(output_of([sys.executable, *words], variables).strip().splitlines()[-1])
    return rates


def measure(size: str, rounds: int) -> dict[str, list[float]]:
    """Tokens per second of every contender's counted steps."""
    found: dict[str, list[float]] = {"ours": [], "by-hand": []}
    with tempfile.TemporaryDirectory() as place:
        make(Path(place), size)
        for _, name in in_turns(found, rounds):
            found[name] += run(name, place, size)[WARM:]
    return found


@reports_errors
def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line."""
    parser = Parser(prog="python -m benchmarks.sft", description=__doc__)
    parser.add_argument("--sizes", nargs="+", choices=[*SIZES], default=[*SIZES])
    parser.add_argument("--rounds", type=positive_int, default=3)
    parser.add_argument("--contender", choices=("ours", "by-hand"), help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args(arguments)
    if args.contender:
        print(json.dumps({"ours": ours, "by-hand": by_hand}[args.contender](args.folder, args.sizes[0])))
        return
    table = new_table("Supervised training", "model", "contender", "tokens/s", "over the loop by hand")
    for size in args.sizes:
        found = {name: statistics.median(rates) for name, rates in measure(size, args.rounds).items()}
        for name, rate in found.items():
            goal = f" (goal {GOAL})" if name == "ours" else ""
            table.add_row(size, name, f"{rate:,.0f}", f"{rate / found['by-hand']:.2f}{goal}")
    console.print(table)


if __name__ == "__main__":
    main()
