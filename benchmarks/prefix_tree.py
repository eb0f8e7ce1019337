"""Compare an update of groups as trees (`algorithm.prefix_tree`) with one of every row, ours and plain verl's.

    python -m benchmarks.prefix_tree --model FOLDER --data DIR    # the public files are in DIR/coser and DIR/fantom

Both engines get the same groups of real prompts in turns, in one process with one thread: verl's TrainingWorker with
full logits and its GRPO loss ("plain verl"), and with our head and DITTO's loss, every row on its own and as trees. The
train phase is the pass for pi_old and the update; DITTO's is compared with that of plain verl's GRPO, which has the
drafts alone. Seconds are those of the CPU, so that another process on the machine matters little; memory is the peak of
an update beyond what was there before it.

Prompts come from a task's own rows and its own `prompt`, without and with feedback, through the model's tokenizer and
chat template. Answers have the lengths of the row's reference (in CoSER the book's conversation, in which a character's
own lines are sampled and the others' are context), varied by a quarter; their tokens are random, because only lengths
matter here. A feedback is 45 random words of the prompt, which is about 60 tokens.
"""

import argparse
import ctypes
import random
import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from os.path import commonprefix
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.side_by_side import console, in_turns, new_table
from data import coser, fantom
from soul import tasks
from soul.cli.arguments import existing_folder, positive_int
from soul.cli.error_border import Parser, reports_errors

PARTS = {"draft": 0, "refined_base": 0, "refined_feedback": 1}  # of ditto's loss
FEEDBACK_WORDS = 45


class TrainingRow(NamedTuple):
    """A sequence: its kind, its ids, and 1 for every response token that the policy sampled."""

    kind: str
    prompt: list[int]
    response: list[int]
    mask: list[int]


def read_records(task: str, folder: Path) -> list[dict[str, Any]]:
    """The rows of the public files of a task in `folder`/`task`."""
    if task == "coser":
        return coser.convert(sorted((folder / task).glob("test_set*.json"))).records
    return fantom.convert(sorted((folder / task).glob("FANToM_*.csv")))


def groups(task_name: str, folder: Path, prompts: int, drafts: int, model: Path) -> list[TrainingRow]:
    """The rows of `prompts` groups: for each `drafts` drafts and as many refined answers in both contexts."""
    from transformers import AutoTokenizer

    task, chance = tasks.load(task_name), random.Random(0)
    records = read_records(task_name, folder)
    rows: list[Any] = [task.row_type.model_validate(r) for r in chance.sample(records, prompts)]
    tokenizer = AutoTokenizer.from_pretrained(model)
    words = " ".join(message["content"] for message in task.prompt(rows[0])).split()

    def prompt(row: Any, feedback: str | None = None) -> list[int]:
        text = tokenizer.apply_chat_template(task.prompt(row, feedback), tokenize=False, add_generation_prompt=True)
        ids: list[int] = tokenizer(text, add_special_tokens=False).input_ids
        return ids

    def sampled(lengths: Sequence[tuple[int, bool]]) -> tuple[list[int], list[int]]:
        response: list[int] = []
        mask: list[int] = []
        for length, own in lengths:
            size = max(1, round(length * chance.uniform(0.75, 1.25)))
            response += [chance.randrange(len(tokenizer)) for _ in range(size)]
            mask += [int(own)] * size
        return response, mask

    training: list[TrainingRow] = []
    for row in rows:
        base = prompt(row)
        turns = [(len(tokenizer(text).input_ids), own) for text, own in _turns(task_name, task, row)]
        for _ in range(drafts):
            feedback = " ".join(chance.choices(words, k=FEEDBACK_WORDS))
            training.append(TrainingRow("draft", base, *sampled(turns)))
            refined = sampled(turns)
            training.append(TrainingRow("refined_base", base, *refined))
            training.append(TrainingRow("refined_feedback", prompt(row, feedback), *refined))
    return training


def _turns(task_name: str, task: Any, row: Any) -> list[tuple[str, bool]]:
    """The turns of a response, and whether the policy says them."""
    if task_name != "coser":
        return [(task.reference(row), True)]
    seat = next(line.speaker for line in row.reference)
    turns = [(line.text, line.speaker == seat) for line in row.reference]
    while not turns[-1][1]:  # a sequence ends with a turn of its own
        turns.pop()
    return turns


@dataclass
class Contender:
    """A way to train on rows, and what it took in each round."""

    worker: Any
    loss: Any
    rows: dict[str, list[Any]]
    as_trees: bool
    update: list[float] = field(default_factory=list)
    log_probs: list[float] = field(default_factory=list)
    peak: list[float] = field(default_factory=list)

    @property
    def tokens(self) -> int:
        """Tokens of all rows, each row on its own."""
        return sum(len(ids) for ids in self.rows["input_ids"])

    @property
    def phase(self) -> float:
        """Median seconds of a train phase."""
        return statistics.median(a + b for a, b in zip(self.log_probs, self.update, strict=True))

    def run(self) -> None:
        """One train phase."""
        from benchmarks.gpu import peak, reset_peak
        from benchmarks.step import one_pass, one_update

        tokens = [len(ids) for ids in self.rows["input_ids"]]
        self.log_probs.append(one_pass(self.worker, self.rows, prefix_tree=self.as_trees, global_token_num=tokens))
        self.worker.set_loss_fn(self.loss)
        ctypes.CDLL(None).malloc_trim(0)  # else memory that others have freed would not count
        before = reset_peak(False)
        self.update.append(one_update(self.worker, self.rows, 1, prefix_tree=self.as_trees))
        self.peak.append((peak(False) - before) / 1e9)


def contenders(task: str, arguments: argparse.Namespace) -> dict[str, Contender]:
    """Everything that is compared, on the rows of one task."""
    import torch

    from benchmarks.step import build_worker, row_columns

    rows = groups(task, arguments.data, arguments.prompts, arguments.drafts, arguments.model)
    refined = [(base.prompt, told.prompt) for base, told in zip(rows[1::3], rows[2::3], strict=True)]
    shared = statistics.median(len(commonprefix(pair)) / len(pair[1]) for pair in refined)
    console.print(f"{task}: {shared:.0%} of a prompt with feedback is the beginning of the prompt without it")
    sampled = sum(sum(row.mask) for row in rows)
    chance = torch.Generator().manual_seed(0)

    def columns(kinds: Sequence[str]) -> dict[str, list[Any]]:
        chosen: dict[str, list[Any]] = {}
        for row in rows:
            if row.kind in kinds:
                prompt, response, mask = (torch.tensor(values) for values in (row.prompt, row.response, row.mask))
                advantage = float(torch.randn(1, generator=chance))
                for name, value in row_columns(prompt, response, mask, advantage, sampled, PARTS[row.kind]).items():
                    chosen.setdefault(name, []).append(value)
        return chosen

    plain, losses = build_worker(arguments.model, arguments.budget)
    ours, _ = build_worker(arguments.model, arguments.budget, chunked=True)
    every, drafts = columns(list(PARTS)), columns(["draft"])
    return {
        "plain verl": Contender(plain, losses["plain"], every, False),
        "DITTO, every row": Contender(ours, losses["ditto"], every, False),
        "DITTO, trees": Contender(ours, losses["ditto"], every, True),
        "GRPO of plain verl": Contender(plain, losses["plain"], drafts, False),
        "GRPO, trees": Contender(ours, losses["grpo"], drafts, True),
    }


def show(task: str, measured: dict[str, Contender], rounds: int) -> None:
    """Print the table of a task and the ratios that have a goal."""
    every = measured["plain verl"]
    table = new_table(
        f"{task}: {len(every.rows['input_ids'])} rows, {every.tokens:,} tokens; median of {rounds} rounds",
        *("", "tokens", "update s", "tokens/s", "peak GB", "log-prob s", "phase s"),
    )
    for name, one in measured.items():
        update = statistics.median(one.update)
        numbers = f"{one.tokens:,}", f"{update:.2f}", f"{one.tokens / update:,.0f}", f"{max(one.peak):.2f}"
        table.add_row(name, *numbers, f"{statistics.median(one.log_probs):.2f}", f"{one.phase:.2f}")
    console.print(table)
    trees, grpo = measured["DITTO, trees"], measured["GRPO of plain verl"]
    faster = statistics.median(every.update) / statistics.median(trees.update)
    for line in (
        f"update, trees over plain verl: {faster:.2f} times the tokens per second (goal: at least 1.8)",
        f"peak memory, trees over plain verl: {max(trees.peak) / max(every.peak):.2f} (goal: below 1)",
        f"train phase, DITTO with trees over plain verl's GRPO: {trees.phase / grpo.phase:.2f} (goal: at most 1.6)",
        f"train phase, DITTO over GRPO, both with trees: {trees.phase / measured['GRPO, trees'].phase:.2f}",
    ):
        console.print(line)


@reports_errors
def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line."""
    parser = Parser(prog="python -m benchmarks.prefix_tree", description=__doc__)
    parser.add_argument("--model", type=existing_folder, required=True, help="in Hugging Face's form")
    parser.add_argument("--data", type=Path, required=True, help="folder with the public files, one folder a task")
    parser.add_argument("--tasks", nargs="+", choices=("coser", "fantom"), default=["coser", "fantom"])
    parser.add_argument("--prompts", type=positive_int, default=1, help="groups of the update")
    parser.add_argument("--drafts", type=positive_int, default=8, help="drafts of a group")
    parser.add_argument("--budget", type=positive_int, default=8192, help="tokens of a micro-batch")
    parser.add_argument("--rounds", type=positive_int, default=3)
    args = parser.parse_args(arguments)

    import torch

    from benchmarks.step import as_only_rank

    as_only_rank()
    torch.set_num_threads(1)
    for task in args.tasks:
        measured = contenders(task, args)
        for _, name in in_turns(measured, args.rounds + 1):
            measured[name].run()
        for one in measured.values():  # the first round warms up
            one.update, one.log_probs, one.peak = one.update[1:], one.log_probs[1:], one.peak[1:]
        show(task, measured, args.rounds)


if __name__ == "__main__":
    sys.exit(main())
