"""Play sessions of the market with a model, and report what it does well: before training, and after.

    python -m benchmarks.judged_world.check DIR [--model DIR] [--sessions 200]

A world that DIR does not hold yet (rows, base and warm model) is made there. Draft, critique and refined conversation
run as in training (`soul.session.run_session`); Ben and the judge answer through an in-process endpoint.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.utils import logging as hf_logging

from benchmarks.judged_world.market import reply
from benchmarks.judged_world.sellers import prepare
from recipe.demo import evaluate
from soul.cli.arguments import existing_folder, output_folder, positive_int
from soul.cli.error_border import Parser, reports_errors
from soul.message import Message
from soul.policy import Players
from soul.rows.task_files import TaskRow, read_rows
from soul.session import Context, RefineSettings, Session, run_session
from soul.testing import FakeOpenAI, fake_gateway


class BatchedSeat:
    """Seats of many sessions: their turns are sampled together once no session moves any more."""

    def __init__(self, model: Any, tokenizer: Any) -> None:
        self._model, self._tokenizer = model, tokenizer
        self._waiting: list[tuple[str, asyncio.Future[str]]] = []
        self._timer: asyncio.TimerHandle | None = None

    async def say(self, messages: Sequence[Message], base: Sequence[Message] | None = None) -> str:
        loop = asyncio.get_running_loop()
        prompt = self._tokenizer.apply_chat_template(list(messages), tokenize=False, add_generation_prompt=True)
        self._waiting.append((prompt, loop.create_future()))
        if self._timer is not None:
            self._timer.cancel()
        self._timer = loop.call_later(0.3, self._sample)
        return await self._waiting[-1][1]

    def _sample(self) -> None:
        waiting, self._waiting = self._waiting, []
        texts = evaluate.generate(self._model, self._tokenizer, [prompt for prompt, _ in waiting], sample=True)
        for (_, future), text in zip(waiting, texts, strict=True):
            future.set_result(text)


async def play(rows: Sequence[TaskRow], model_dir: Path) -> list[Session]:
    """One session of each row."""
    tokenizer = AutoTokenizer.from_pretrained(model_dir)
    model = AutoModelForCausalLM.from_pretrained(model_dir, dtype=torch.float32).eval()
    seat = BatchedSeat(model, tokenizer)
    gateway = fake_gateway(FakeOpenAI(reply))

    def players(_: Context) -> Players:
        return Players(lambda _name: seat)

    return list(await asyncio.gather(*(run_session(r.task, r.row, players, gateway, RefineSettings()) for r in rows)))


def report(sessions: Sequence[Session]) -> dict[str, Any]:
    """Means of drafts and of refined conversations, failures, and how often the refined one is better."""
    numbers: dict[str, Any] = {"sessions": len(sessions)}
    for name in ("draft", "refined"):
        attempts = [getattr(session, name) for session in sessions]
        verdicts = [attempt.verdict for attempt in attempts if attempt and attempt.verdict]
        numbers[f"{name} failed"] = len(sessions) - len(verdicts)
        numbers[f"{name} spread"] = statistics.pstdev(verdict.reward for verdict in verdicts)
        for metric in sorted({key for verdict in verdicts for key in verdict.metrics}):
            numbers[f"{name} {metric}"] = statistics.fmean(verdict.metrics[metric] for verdict in verdicts)
    pairs = [
        (s.draft.verdict.reward, s.refined.verdict.reward)
        for s in sessions
        if s.draft.verdict and s.refined and s.refined.verdict
    ]
    numbers["refined better"] = statistics.fmean(refined > draft for draft, refined in pairs)
    numbers["refined worse"] = statistics.fmean(refined < draft for draft, refined in pairs)
    return numbers


@reports_errors
def main(arguments: Sequence[str] | None = None) -> None:
    """Print the report."""
    parser = Parser(prog="python -m benchmarks.judged_world.check", description=__doc__)
    parser.add_argument("folder", type=output_folder, help="the world: rows and models")
    parser.add_argument("--model", type=existing_folder, help="the model to play with (default: the warm start)")
    parser.add_argument("--sessions", type=positive_int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args(arguments)
    hf_logging.disable_progress_bar()
    if not (args.folder / "warm" / "config.json").exists():
        prepare(args.folder)
    torch.manual_seed(args.seed)
    rows = read_rows([str(args.folder / "train.parquet")])[: args.sessions]
    sessions = asyncio.run(play(rows, args.model or args.folder / "warm"))
    for name, value in report(sessions).items():
        print(f"{name:45} {value:8.3f}")


if __name__ == "__main__":
    sys.exit(main())
