"""Measure what the traces of a training step cost: the share of a step's time that is spent on writing them.

    python -m benchmarks.traces [--sessions 512] [--tokens 8192] [--step-s 300]

The sessions are those of the recipe at full length: a draft and a refined answer of `--tokens` tokens each, at four
characters a token, and three training sequences. Three things are timed, each as it runs in a training:

    live      while the step runs, the agent loops list each session's sequences, turn it into a line and append that to
              traces/live. Here one process plays all sessions; a run spreads them over its agent-loop workers. `held`
              is the part during which that process's event loop could do nothing else.
    details   the trainer adds advantages, weights and log-probs to the traces
    final     the trainer writes the step's file, synced to disk, and removes the live files

`details` and `final` hold up the step; `live` runs beside the sampling and only `held` can slow it. A step of 512 such
sessions samples 8.4 million tokens and trains on 12.6 million, which takes minutes on eight GPUs; the share is of
`--step-s` seconds. Goal: below 1 %.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from benchmarks.driver import KINDS, PROMPT_TOKENS, STEP_S, N, played_session
from benchmarks.judge import console, new_table, print_load
from ditto.batch.jagged import with_values
from ditto.batch.sequence_record import SequenceRecord
from ditto.batch.step_batch import Columns, StepBatch
from ditto.batch.trace_details import note_log_probs, note_plan
from ditto.objectives import OBJECTIVES
from ditto.run.live_traces import LiveTraces
from ditto.run.run_folder import RunFolder
from ditto.settings import RunSettings, Settings
from soul.cli.arguments import positive_int
from soul.cli.error_border import Parser, reports_errors
from soul.host_resources import infrequent_gc
from soul.record import SessionRecord

GOAL = 0.01
PARTS = ("live", "held", "details", "final")
TURNS, CHARACTERS = 16, 4  # turns of the policy in an episode; characters a token
SETTINGS = Settings(objective=OBJECTIVES["ditto"], run=RunSettings(dir="unused"))


def session(number: int, tokens: int, played: SessionRecord) -> SessionRecord:
    """The record of a session whose draft and refined answer have `tokens` tokens each."""
    trace = played.model_copy(deep=True)
    trace.prompt, trace.row, trace.number = f"prompt{number // N}", number // N, number // N
    trace.session = f"{trace.prompt}_{number % N}"
    for attempt in trace.attempts:
        for messages in (attempt.seats or {}).values():
            for message in messages[1:]:
                text = f"{message['content']} "
                size = tokens * CHARACTERS // len(messages[1:])
                message["content"] = (text * (size // len(text) + 1))[:size]
    return trace


def sampled(tokens: int) -> list[SequenceRecord]:
    """The sequences of a session as the agent loop has them: one of each kind."""
    fields: dict[str, Any] = {"seat": "agent1", "tokens": tokens, "prompt_ids": [1] * PROMPT_TOKENS}
    fields |= {"response_mask": [1] * tokens, "response_logprobs": [-0.5] * tokens}
    return [SequenceRecord(kind, "", "", True, **fields) for kind in SETTINGS.objective.kinds]


def step_of(traces: Sequence[SessionRecord], tokens: int) -> StepBatch:
    """The step as the trainer has it once the actor's log-probs are computed."""
    records = [
        SequenceRecord(
            kind,
            trace.prompt,
            trace.session,
            True,
            tokens=tokens,
            draft_reward=number % 11 / 10,
            refined_reward=number % 7 / 10,
            place=place,
        )
        for number, trace in enumerate(traces)
        for place, kind in enumerate(KINDS)
    ]
    step = StepBatch(records, list(traces))
    step.plan([0] * len(records), SETTINGS, "token-mean", 1.0)
    rows = torch.arange(len(records) + 1) * tokens
    mask = torch.nested.nested_tensor_from_jagged(torch.ones(int(rows[-1]), dtype=torch.int64), rows)
    values = with_values(torch.full((int(rows[-1]),), -0.5), mask)
    step.columns = Columns(mask, values, values)
    return step


@dataclass
class Cost:
    """What a part takes, in seconds: by the wall clock, and of this process's CPU time, its threads included."""

    wall: float = 0.0
    cpu: float = 0.0

    @contextmanager
    def running(self) -> Iterator[None]:
        wall, cpu = time.perf_counter(), time.process_time()
        yield
        self.wall += time.perf_counter() - wall
        self.cpu += time.process_time() - cpu


async def append_all(folder: Path, traces: Sequence[SessionRecord], tokens: int, held: Cost) -> None:
    """Append every session to the live traces; `held` is the part that the event loop waits for."""
    live, waiting, sequences = LiveTraces(folder), [], sampled(tokens)
    for trace in traces:
        with held.running():
            trace.sequences = [sequence.summary() for sequence in sequences]
            waiting.append(asyncio.create_task(live.append(1, trace.to_line())))
            await asyncio.sleep(0)  # the task hands its line to a thread
    await asyncio.gather(*waiting)


def measured(sessions: int, tokens: int, folder: Path) -> tuple[dict[str, Cost], int]:
    """What each part costs in one step, and the size of the step's file in bytes."""
    played = played_session(TURNS)
    traces = [session(number, tokens, played) for number in range(sessions)]
    costs, runs = {name: Cost() for name in PARTS}, RunFolder(folder)
    runs.open_live()
    with costs["live"].running():
        asyncio.run(append_all(folder, traces, tokens, costs["held"]))
    step = step_of(traces, tokens)
    with costs["details"].running():
        note_plan(step, SETTINGS.objective, regularised=False)
        note_log_probs(step)
    with costs["final"].running():
        runs.write_traces("step", 1, traces)
    return costs, (folder / "traces" / "step_000001.jsonl").stat().st_size


def show(costs: dict[str, Cost], lost: Cost, title: str, step_s: float) -> None:
    """Print the seconds of each part, and the share of a step."""
    table = new_table(title, "part", "CPU s", "wall s", f"wall, of {step_s:.0f} s")
    for name, cost in {**costs, "held + details + final": lost}.items():
        table.add_row(name, f"{cost.cpu:.3f}", f"{cost.wall:.3f}", f"{cost.wall / step_s:.3%}")
    console.print(table)
    console.print(f"Goal: below {GOAL:.0%}. A step of {lost.wall / GOAL:.0f} s or longer meets it here.")
    print_load()


@reports_errors
def main(arguments: Sequence[str] | None = None) -> int:
    """Measure; returns 1 if the goal is missed."""
    parser = Parser(prog="python -m benchmarks.traces", description=__doc__)
    parser.add_argument("--sessions", type=positive_int, default=512)
    parser.add_argument("--tokens", type=positive_int, default=8192, help="of each episode")
    parser.add_argument("--step-s", type=float, default=STEP_S, help="seconds that a step takes")
    parser.add_argument("--dir", type=Path, help="folder to write to, on the disk that you want to know about")
    args = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(dir=args.dir) as name, infrequent_gc():  # as the trainer's loop runs
        measured(N, 100, Path(name) / "first")  # imports and first uses
        costs, size = measured(args.sessions, args.tokens, Path(name))
    blocking = [costs[name] for name in PARTS if name != "live"]
    lost = Cost(sum(cost.wall for cost in blocking), sum(cost.cpu for cost in blocking))
    sizes = f"{size / 1e6:.0f} MB, {size / args.sessions / 1e3:.0f} kB a session"
    show(costs, lost, f"{args.sessions:,} sessions of 2 x {args.tokens:,} tokens: {sizes}", args.step_s)
    return int(lost.wall > GOAL * args.step_s)


if __name__ == "__main__":
    sys.exit(main())
