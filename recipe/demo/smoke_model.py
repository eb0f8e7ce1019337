"""A tiny model for the smoke test of any task on a CPU: it knows the form of the turns and nothing else.

    python -m recipe.demo.smoke_model --rows train.parquet --out outputs/smoke

The tokenizer is trained on the rows' own conversations, the weights are random, and a short supervised training on what
the examples' players say (`soul.examples`: some right, some at random) teaches the form: an answer tag, an action, a
line of dialogue. So rewards have spread, and a training run exercises every part of the machinery. It is no baseline
for anything.
"""

from __future__ import annotations

import asyncio
import random
import sys
from collections.abc import Sequence
from pathlib import Path

from transformers.utils import logging as hf_logging

from recipe.demo import tiny_model, warm_start
from soul import examples
from soul.cli.arguments import existing_file, output_folder, positive_int
from soul.cli.error_border import Parser, reports_errors
from soul.examples.example import Player, Style
from soul.rows.task_files import TaskRow, read_rows
from soul.task import Message
from soul.testing.contract import played
from soul.testing.doubles import ScriptedSeat

OPENING, ENDING = 100, 400  # characters of a turn's context that are taught: where it begins, and where the form stands
PLAYED_ROWS = 24  # of each task
Turn = tuple[list[Message], str]


async def turns_of(row: TaskRow, style: Style) -> list[Turn]:
    """What a player saw and said, turn by turn, in one episode of the row."""
    session = await played(examples.load(row.task.name), row.row, _player(row, style), refine=False)
    turns: list[Turn] = []
    for seat in session.draft.players.seats.values():
        assert isinstance(seat, ScriptedSeat)
        replay = _player(row, style)
        turns += [(messages, replay(messages)) for messages, _ in seat.heard]
    return turns


def _player(row: TaskRow, style: Style) -> Player:
    return examples.load(row.task.name).player(style, row.row)


def shortened(messages: Sequence[Message]) -> list[Message]:
    """The context as it is taught: short, so that teaching is fast."""
    text = "\n".join(message["content"] for message in messages)
    if len(text) > OPENING + ENDING:
        text = f"{text[:OPENING]}\n{text[-ENDING:]}"
    return [{"role": "user", "content": text}]


def make(files: Sequence[str], out: Path, steps: int, seed: int = 0) -> Path:
    """Build the model and teach it the form of the turns.

    Raises:
        KeyError: a task has no example.
    """
    of_task: dict[str, list[TaskRow]] = {}
    for row in read_rows(files):
        of_task.setdefault(row.task.name, []).append(row)
    chosen = [row for rows in of_task.values() for row in rows[:PLAYED_ROWS]]
    styles: tuple[Style, ...] = ("oracle", "random")
    by_task: dict[str, list[Turn]] = {}
    for row in chosen:
        for style in styles:
            by_task.setdefault(row.task.name, []).extend(asyncio.run(turns_of(row, style)))
    corpus = [message["content"] for row in chosen for message in row.task.prompt(row.row)]
    tiny_model.build(out, [*corpus, *(said for turns in by_task.values() for _, said in turns)], seed)
    names = sorted(by_task)

    def draw(rng: random.Random) -> Turn:
        messages, said = rng.choice(by_task[rng.choice(names)])
        return shortened(messages), said

    warm_start.train(out, out, draw, warm_start.WarmStart(steps=steps, seed=seed))
    return out


@reports_errors
def main(arguments: Sequence[str] | None = None) -> None:
    """Make the folder."""
    parser = Parser(prog="python -m recipe.demo.smoke_model", description=__doc__)
    parser.add_argument("--rows", nargs="+", type=existing_file, required=True, help="task files")
    parser.add_argument("--out", type=output_folder, required=True)
    parser.add_argument("--steps", type=positive_int, default=60)
    args = parser.parse_args(arguments)
    hf_logging.disable_progress_bar()
    make([str(file) for file in args.rows], args.out, args.steps)


if __name__ == "__main__":
    sys.exit(main())
