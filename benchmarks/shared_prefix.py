"""Measure how much of a refined prompt is its base prompt, on the rows of your files: what is computed once, not twice.

    python -m benchmarks.shared_prefix data/sim_rl_data/*.parquet [--rows 20] [--drafts 8]

A session is played for each row, with a critique of 50 words. `shared` is the part of the refined prompt with which the
base prompt begins too: vLLM's prefix cache and the trainer's prefix tree compute it once. `prompts, plain / tree` is
the size of all prompts of a group (a draft, a refined answer in the base context and one with the feedback, `--drafts`
times), over their size as a tree, in which the common beginning stands once. Answers are not counted, so an update
gains less. Sizes are in characters. `rows` counts those that got feedback, of those that were played.
"""

from __future__ import annotations

import asyncio
import random
import statistics
import sys
from collections import defaultdict
from collections.abc import Sequence
from os.path import commonprefix
from typing import Any

from rich.console import Console
from rich.table import Table

from soul import examples
from soul.cli.arguments import positive_int
from soul.cli.error_border import Parser, reports_errors
from soul.examples.contract import played
from soul.examples.endpoint import answer
from soul.message import Message
from soul.rows.task_files import read_rows
from soul.task_types import Row
from soul.testing import ChatRequest, Json, Reply

CRITIQUE = "You overlooked what this person could know at that time. " * 5


def critic(request: ChatRequest) -> Reply:
    """The examples' endpoint, with one critique."""
    reply = answer(request)
    if isinstance(reply, Json) and isinstance(reply.value, dict):
        return Json({**reply.value, **{field: CRITIQUE for field in ("critique", "reasoning") if field in reply.value}})
    return reply


def prompts_of(task: str, row: Row) -> list[tuple[str, str]]:
    """The first base and the first refined prompt of every seat of the policy; nothing if there is no feedback."""
    example = examples.load(task)
    session = asyncio.run(played(example, row, example.contrarian(row), critic))
    if session.refined is None:
        return []
    heard: list[tuple[Any, Any]] = [seat.heard[0] for seat in session.refined.players.seats.values()]  # type: ignore[attr-defined]
    return [(_text(base), _text(refined)) for refined, base in heard]


def _text(messages: Sequence[Message]) -> str:
    return "".join(f"<|im_start|>{message['role']}\n{message['content']}<|im_end|>\n" for message in messages)


def shared(base: str, refined: str) -> float:
    """The share of the refined prompt that the base prompt begins with."""
    return len(commonprefix([base, refined])) / len(refined)


def gain(base: str, refined: str, drafts: int) -> float:
    """Size of a group's prompts, one by one, over their size as a tree."""
    common = len(commonprefix([base, refined]))
    plain = drafts * (2 * len(base) + len(refined))
    return plain / (len(base) + drafts * (len(refined) - common))


@reports_errors
def main(arguments: Sequence[str] | None = None) -> None:
    """Print a line for each task of the files."""
    parser = Parser(prog="python -m benchmarks.shared_prefix", description=__doc__)
    parser.add_argument("files", nargs="+", help="task files (parquet)")
    parser.add_argument("--rows", type=positive_int, default=20, help="of each task, drawn with a seed (default: 20)")
    parser.add_argument("--drafts", type=positive_int, default=8, help="of a group (default: 8)")
    args = parser.parse_args(arguments)
    of_task: defaultdict[str, list[Row]] = defaultdict(list)
    for item in read_rows(args.files):
        of_task[item.task.name].append(item.row)
    table = Table("task", *("rows", "base prompt", "shared", "least shared", "prompts, plain / tree"))
    for task, rows in sorted(of_task.items()):
        chosen = random.Random(0).sample(rows, min(args.rows, len(rows)))
        of_row = [prompts_of(task, row) for row in chosen]
        pairs = [pair for prompts in of_row for pair in prompts]
        if not pairs:
            table.add_row(task, f"0 of {len(chosen)}")
            continue
        shares = [shared(*pair) for pair in pairs]
        table.add_row(
            *(
                task,
                f"{sum(map(bool, of_row))} of {len(chosen)}",
                f"{statistics.median(len(base) for base, _ in pairs):,.0f}",
            ),
            *(f"{statistics.median(shares):.0%}", f"{min(shares):.0%}"),
            f"{statistics.median(gain(*pair, args.drafts) for pair in pairs):.1f}",
        )
    Console(width=100).print(table)


if __name__ == "__main__":
    sys.exit(main())
