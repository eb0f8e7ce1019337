"""Serve SOUL's sets by OpenEnv: a trainer anywhere plays the policy's turns, the server plays all others and judges.

    pip install -e '.[openenv]'
    soul openenv hitom sotopia --data DIR judge.model=gpt-5.4     # suites and parquet files too

    client.reset(split="sotopia", index=3)           # the first observation: the seat that is to speak, what it reads
    client.step({"text": "Hello, Mia."})             # the next one; the last has the reward, metrics and critique
    client.reset(split="sotopia", index=3, feedback=...)    # the same row again, with feedback in the prompt

A split is a set, and its tasks are the rows. `reset(refine=True)` also asks for the feedback on the episode, which the
last observation then has: the text for the second `reset`. `base` of an observation is the conversation without it, in
which DITTO trains the refined turns. Steps before the last have the reward 0.0. If a judge or another model fails, the
step is an error, which carries no reward.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, NoReturn
from uuid import uuid4

from soul import adapters
from soul.cli.arguments import is_setting, positive_float, positive_int
from soul.cli.error_border import Parser, reports_errors
from soul.errors import BadSettings, SoulError
from soul.evaluate.run.options import Sections
from soul.judge.roles import sections_of
from soul.message import Message
from soul.policy import Players
from soul.rows.task_files import TaskRow
from soul.session import Attempt, RefineSettings, play, score
from soul.suites import soul_v1

try:
    import uvicorn
    from fastapi import FastAPI
    from openenv.core.env_server import Environment, create_fastapi_app
    from openenv.core.env_server.types import Action, Observation, State
    from openenv.core.rubrics import Rubric
except ImportError as error:
    raise adapters.not_installed("soul.openenv", "openenv", "openenv") from error


class SoulAction(Action):
    """A turn of the policy."""

    text: str


class SoulObservation(Observation):
    """The messages that a seat reads before its turn; after the last turn `seat` is None, and the verdict is here."""

    seat: str | None = None
    messages: list[Message] = []
    base: list[Message] = []
    metrics: dict[str, float] = {}
    critique: str | None = None
    feedback: str | None = None
    feedback_failure: str | None = None


class SoulState(State):
    """The row that is played, and at the end the whole episode with its verdict."""

    split: str = ""
    index: int = 0
    task: str = ""
    groups: dict[str, str] = {}
    refined: bool = False
    attempt: dict[str, Any] | None = None


class ServedSets(NamedTuple):
    """The rows that a server offers, by split, and the models around the policy."""

    rows: Mapping[str, Sequence[TaskRow]]
    sections: Sections
    deadline: float | None = None

    def split(self, name: str | None) -> str:
        """The name of a split; None: the only one."""
        if name not in self.rows and not (name is None and len(self.rows) == 1):
            raise BadSettings(f"split={name!r}: this server has {', '.join(self.rows)}.")
        return name or next(iter(self.rows))

    def row(self, split: str, index: int) -> TaskRow:
        """A row of a split. Raises IndexError: the split has no such row."""
        if not 0 <= index < (count := len(self.rows[self.split(split)])):
            raise IndexError(f"index={index}: the split {split} has the rows 0 to {count - 1}.")
        return self.rows[split][index]


def load_sets(
    names: str, data: str | None, sections: Sections, limit: int | None, seed: int, deadline: float | None
) -> ServedSets:
    """Draw the rows as `soul evaluate` does."""
    rows: dict[str, list[TaskRow]] = {}
    for drawn in adapters.draw_rows(names, data, sections, limit, seed):
        rows.setdefault(drawn.set, []).append(drawn.row)
    return ServedSets(rows, sections, deadline)


class SoulRubric(Rubric):
    """The verdict's reward, in the task's own range."""

    def __init__(self, judge: Callable[[], Awaitable[float]]) -> None:
        super().__init__()
        self.judge = judge

    async def forward(self, action: Any, observation: Any) -> float:
        return await self.judge()


class _Turn(NamedTuple):
    seat: str
    messages: Sequence[Message]
    base: Sequence[Message]
    said: asyncio.Future[str]


@dataclass(frozen=True)
class _RemoteSeat:
    name: str
    turns: asyncio.Queue[_Turn]

    async def say(self, messages: Sequence[Message], base: Sequence[Message] | None = None) -> str:
        turn = _Turn(self.name, messages, base or messages, asyncio.get_running_loop().create_future())
        self.turns.put_nowait(turn)
        return await turn.said


class SoulEnvironment(Environment[SoulAction, SoulObservation, SoulState]):
    """One session of a client: one row after another."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self, served: ServedSets) -> None:
        super().__init__(rubric=SoulRubric(self._judge))
        self.served = served
        self.turn: _Turn | None = None
        self.playing: asyncio.Task[Attempt] | None = None
        self._state = SoulState()

    async def reset_async(
        self,
        seed: int | None = None,
        episode_id: str | None = None,
        split: str | None = None,
        index: int | None = None,
        feedback: str | None = None,
        refine: bool = False,
        **unknown: Any,
    ) -> SoulObservation:
        """Begin a row: the one of this index, or one that the seed draws."""
        if unknown:
            raise BadSettings(f"reset has no argument {next(iter(unknown))!r}: split, index, feedback, refine, seed.")
        split = self.served.split(split)
        index = random.Random(seed).randrange(len(self.served.rows[split])) if index is None else index
        self.row, self.refine = self.served.row(split, index), refine
        self.close()
        task, row = self.row.task, self.row.row
        place = {"split": split, "index": index, "task": task.name, "groups": dict(task.groups(row))}
        self._state = SoulState(episode_id=episode_id or str(uuid4()), refined=feedback is not None, **place)
        self.turns, self.turn = asyncio.Queue[_Turn](), None
        self.gateway = adapters.connect(self.served.sections, task.name)
        players = Players(lambda name: _RemoteSeat(name, self.turns))
        settings = RefineSettings(episode_deadline_s=self.served.deadline)
        self.playing = asyncio.create_task(play(task, row, players, self.gateway, feedback, settings))
        return await self._next(None)

    async def step_async(self, action: SoulAction, timeout_s: float | None = None, **_: Any) -> SoulObservation:
        """Say the turn, and play on to the policy's next one, or to the verdict."""
        if self.turn is None:
            raise SoulError("No seat waits for a turn: call reset first. Over HTTP, use the WebSocket client.")
        self._state.step_count += 1
        turn, self.turn = self.turn, None
        turn.said.set_result(action.text)
        async with asyncio.timeout(timeout_s):
            return await self._next(action)

    async def _next(self, action: SoulAction | None) -> SoulObservation:
        assert self.playing is not None
        asked = asyncio.create_task(self.turns.get())
        try:
            await asyncio.wait({asked, self.playing}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            asked.cancel()
        if asked.done():
            self.turn = asked.result()
            seat, messages, base, _ = self.turn
            reward = None if action is None else 0.0
            return SoulObservation(seat=seat, messages=list(messages), base=list(base), reward=reward)
        self.attempt = self.playing.result()
        observation = SoulObservation(done=True)
        observation.reward = await self._apply_rubric_async(action, observation)
        verdict = self.attempt.require_verdict()
        observation.metrics, observation.critique = dict(verdict.metrics), verdict.critique
        if self.refine:
            advice = await adapters.advise(self.row, self.attempt, self.gateway)
            observation.feedback, why = advice.feedback, advice.feedback_failure
            observation.feedback_failure = f"{why.cause}: {why.detail}" if why else None
        return observation

    async def _judge(self) -> float:
        if self.attempt.episode is not None:
            await score(self.attempt, self.row.task, self.row.row, self.gateway)
        self._state.attempt = self.attempt.to_record().model_dump(mode="json")
        return self.attempt.require_verdict().reward

    def reset(self, *_: Any, **__: Any) -> NoReturn:
        raise SoulError("SOUL's environment is asynchronous: await reset_async and step_async, or use a client.")

    step = reset

    @property
    def state(self) -> SoulState:
        return self._state

    def close(self) -> None:
        """End the play, also from another thread."""
        if self.playing is not None and not (loop := self.playing.get_loop()).is_closed():
            loop.call_soon_threadsafe(self.playing.cancel)

    # OpenEnv's task provider

    def list_splits(self) -> list[dict[str, str]]:
        return [{"name": name, "type": "test" if name in soul_v1.SETS else "train"} for name in self.served.rows]

    def num_tasks(self, split: str) -> int:
        return len(self.served.rows[self.served.split(split)])

    def get_task(self, split: str, index: int) -> dict[str, Any]:
        row = self.served.row(split, index)
        return {"id": f"{split}-{index}", "index": index, "task": row.task.name, **row.task.groups(row.row)}

    def get_task_range(self, split: str, start: int | None = None, stop: int | None = None) -> list[dict[str, Any]]:
        return [self.get_task(split, index) for index in range(self.num_tasks(split))[start:stop]]

    list_tasks = get_task_range  # all of them


def create_app(served: ServedSets, sessions: int = 64) -> FastAPI:
    """OpenEnv's application for at most this many clients at once."""
    new = partial(SoulEnvironment, served)
    app = create_fastapi_app(new, SoulAction, SoulObservation, sessions, env_name="soul", state_cls=SoulState)
    app.router.on_shutdown.append(adapters.disconnect)
    return app


@reports_errors
def main(arguments: Sequence[str] | None = None) -> None:
    """Serve the named sets."""
    parser = Parser(prog="soul openenv", description=__doc__)
    add = parser.add_argument
    add("words", nargs="+", help="sets, parquet files or a suite; and section.key=value", metavar="SET")
    add("--data", type=Path, help="the folder with the data files; default: DATA_DIR")
    add("--limit", type=positive_int, help="rows of each set, drawn by the seed")
    add("--seed", type=int, default=0, help="decides which rows are drawn")
    add("--deadline", type=positive_float, help="seconds that the play of one episode may take")
    add("--sessions", type=positive_int, default=64, help="clients at once (default 64)")
    add("--host", default="127.0.0.1", help="in a container 0.0.0.0")
    add("--port", type=positive_int, default=8000)
    given = parser.parse_args(arguments)
    names = ",".join(word for word in given.words if not is_setting(word))
    sections = sections_of([word for word in given.words if is_setting(word)], ["tasks"])
    served = load_sets(names, given.data, sections, given.limit, given.seed, given.deadline)
    counts = ", ".join(f"{name} ({len(rows):,} rows)" for name, rows in served.rows.items())
    print(f"OpenEnv at http://{given.host}:{given.port} serves {counts}", flush=True)
    uvicorn.run(create_app(served, given.sessions), host=given.host, port=given.port, log_level="warning")
