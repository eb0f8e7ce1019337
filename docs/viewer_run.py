"""An invented training for the pictures of docs/viewer.md (draw_pictures.py).

The rows are those of the tasks' examples. A stand-in plays them, and plays better from step to step; judges and
partners answer by rule. So the numbers show the form and mean nothing.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator, Sequence
from pathlib import Path

from ditto.run.run_folder import RunFolder
from ditto.run.step_metrics import session_metrics
from soul import examples
from soul.examples.contract import played
from soul.examples.endpoint import CRITIQUE
from soul.examples.example import Player
from soul.message import Message
from soul.record import SequenceSummary, SessionRecord

TASKS, STEPS, ROWS, GROUP = ("hitom", "sotopia"), 12, 8, 4
BEGAN = 1_750_000_000.0  # unix time
STEP_S = 600.0  # seconds


def training(folder: Path) -> Path:
    """Write a training run of STEPS steps, with GROUP sessions of ROWS rows of each task."""
    run, dice = RunFolder(folder), random.Random(0)
    for step in range(1, STEPS + 1):
        records = list(_sessions(step))
        run.write_traces("step", step, records)
        times = {"timing_s/gen": dice.uniform(40, 60), "timing_s/update_actor": dice.uniform(18, 22)}
        numbers = {"actor/entropy": 1.2 * 0.97**step, "actor/grad_norm": dice.uniform(0.4, 0.6)}
        run.log_metrics(step, session_metrics(records) | times | numbers)
    return folder


def _sessions(step: int) -> Iterator[SessionRecord]:
    dice = random.Random(step)
    for task in TASKS:
        for number in range(ROWS):
            row = examples.load(task).row(number)
            for place in range(GROUP):
                player = _player(task, number, 0.2 + 0.5 * step / STEPS, dice)
                session = asyncio.run(played(examples.load(task), row, player, step=step))
                record = session.to_record(f"{task}.parquet", number)
                _add_times(record, BEGAN + STEP_S * step + place, dice)
                _add_sequences(record)
                group = f"{task}-{number}"
                yield record.model_copy(update={"prompt": group, "session": f"{group}_{place}"})


def _player(task: str, number: int, skill: float, dice: random.Random) -> Player:
    """Plays a row well with the chance `skill` in each turn, and more often with feedback."""
    example = examples.load(task)
    row = example.row(number)
    good, bad = example.player("oracle", row), example.player("contrarian", row)

    def say(messages: Sequence[Message]) -> str:
        advised = any(CRITIQUE in message["content"] for message in messages)
        return (good if dice.random() < skill + 0.3 * advised else bad)(messages)

    return say


def _add_times(record: SessionRecord, clock: float, dice: random.Random) -> None:
    """Replace the stages' times by invented ones, one stage after the other from `clock` on."""
    for attempt in record.attempts:
        for stage in attempt.seconds:
            attempt.started[stage], attempt.seconds[stage] = clock, dice.uniform(1, 6)
            clock += attempt.seconds[stage]


def _add_sequences(record: SessionRecord) -> None:
    for kind, attempt in (("draft", record.draft), ("refined_base", record.refined)):
        if attempt and attempt.reward is not None:
            sizes = {"seat": "policy", "prompt_tokens": 400, "response_tokens": 90, "logp_sampled": -0.4}
            trained = {"attempt": kind.split("_")[0], "kind": kind, "advantage": attempt.reward - 0.5, "weight": 0.01}
            record.sequences.append(SequenceSummary.model_validate({**sizes, **trained}))
