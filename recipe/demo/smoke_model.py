"""Make a tiny model for a smoke test of any task on a CPU. It knows the form of the turns and nothing else.

    python -m recipe.demo.smoke_model --rows train.parquet --out outputs/smoke

The tokenizer is trained on the rows' own conversations, the weights are random, and a short supervised training on the
turns of the examples' players (`soul.examples`: some right, some random) teaches the form: an answer tag, an action, a
line of dialogue. So rewards vary, and a training run exercises every part of the code. It is not a baseline.
"""

import asyncio
import random
import sys
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from transformers.utils import logging as hf_logging

from recipe.demo import tiny_model, warm_start
from soul import examples
from soul.cli.arguments import existing_file, output_folder, positive_int
from soul.cli.error_border import Parser, reports_errors
from soul.examples.contract import played
from soul.examples.example import Player, Style
from soul.message import Message
from soul.rows.task_files import TaskRow, read_rows
from soul.testing.doubles import ScriptedSeat

OPENING, ENDING = 100, 400  # characters kept of a turn's context: its beginning, and its end, which describes the form
PLAYED_ROWS = 24  # per task
Turn = tuple[list[Message], str]


async def turns_of(row: TaskRow, style: Style) -> list[Turn]:
    """The contexts and replies of a player, turn by turn, in one episode of the row."""
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
    """The context of a turn, cut so that training is fast."""
    text = "\n".join(message["content"] for message in messages)
    if len(text) > OPENING + ENDING:
        text = f"{text[:OPENING]}\n{text[-ENDING:]}"
    return [{"role": "user", "content": text}]


def make(files: Sequence[str], out: Path, steps: int) -> Path:
    """Build the model and teach it the form of the turns."""
    rows_by_task: defaultdict[str, list[TaskRow]] = defaultdict(list)
    for row in read_rows(files):
        rows_by_task[row.task.name].append(row)
    chosen = [row for rows in rows_by_task.values() for row in rows[:PLAYED_ROWS]]
    styles: tuple[Style, ...] = ("oracle", "random")
    turns_by_task: defaultdict[str, list[Turn]] = defaultdict(list)
    for row in chosen:
        for style in styles:
            turns_by_task[row.task.name] += asyncio.run(turns_of(row, style))
    corpus = [message["content"] for row in chosen for message in row.task.prompt(row.row)]
    tiny_model.build(out, [*corpus, *(reply for turns in turns_by_task.values() for _, reply in turns)])
    names = sorted(turns_by_task)

    def draw(rng: random.Random) -> Turn:
        messages, reply = rng.choice(turns_by_task[rng.choice(names)])
        return shortened(messages), reply

    warm_start.train(out, out, draw, warm_start.WarmStart(steps=steps))
    return out


@reports_errors
def main(arguments: Sequence[str] | None = None) -> None:
    """Write the model's folder."""
    parser = Parser(prog="python -m recipe.demo.smoke_model", description=__doc__)
    parser.add_argument("--rows", nargs="+", type=existing_file, required=True, help="task files")
    parser.add_argument("--out", type=output_folder, required=True)
    parser.add_argument("--steps", type=positive_int, default=60)
    args = parser.parse_args(arguments)
    hf_logging.disable_progress_bar()
    make([str(file) for file in args.rows], args.out, args.steps)


if __name__ == "__main__":
    sys.exit(main())
