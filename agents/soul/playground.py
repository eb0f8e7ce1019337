"""The playground: play a row yourself, let an endpoint play it, or talk to a trained simulator.

    ground = Playground.from_arguments({"hitom": None}, ["judge.base_url=http://127.0.0.1:8000/v1"], Path("kept"))
    session = ground.start("hitom", 0, "me")["session"]
    ground.say(session, "<answer>B</answer>")
    ground.state(session)            # "turn": "refine", with reward, metrics and feedback
    ground.refine(session)           # your turn again, with the feedback in the prompt
    ground.keep(session, "record")

The driver of training and evaluation (`run_session`) runs every session; a person is a model whose answers are typed.
All sessions share one thread with one event loop. The methods return JSON at once, from any thread, or raise
CannotPlay. Only endpoints that the settings or the environment name are asked.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, get_args

from soul import examples, tasks
from soul.errors import BadRow, BadSettings, JudgeFailure, SoulError
from soul.judge import ROLES, ChatModel, Endpoint, Gateway, GatewaySettings, Judge, Role, Usage
from soul.judge.client import Completed, Completions, EndpointClient, Request
from soul.judge.roles import policy_endpoint, sections_of
from soul.message import Message
from soul.policy import OpenAISeat, Players
from soul.rows.convert import read_records
from soul.rows.task_files import TaskRow, parse_row, read_rows
from soul.session import Attempt, Context, RefineSettings, Session, run_session

Player = Literal["me", "endpoint", "talk"]  # the policy is a person; a model; a model, and its partner a person
EXAMPLES = 20  # rows of a task without a file
PAGE, SHOWN = 20, 200  # rows of a page of `rows`, and characters of each
MOST_SESSIONS = 50
IDLE_S = 3600.0  # then a session that waits for a person ends
PARTNER: Role = "partner"
Kept = Literal["record", "row"]
KEPT: dict[Kept, str] = {"record": "records.jsonl", "row": "rows.jsonl"}
_PERSON = Endpoint.model_construct(model="a person", max_reasks=0)
_SCORES = {"ended", "reward", "metrics", "critique", "contentless", "failure"}


class CannotPlay(SoulError):
    """The playground cannot do what was asked for."""


@dataclass
class _Nobody:
    """A role without an endpoint: every call fails."""

    endpoint: Endpoint
    role: Role

    async def complete(self, request: Request, usage: Usage) -> Completed:
        raise JudgeFailure("not_found", f"no endpoint is configured for the {self.role}")

    async def close(self) -> None: ...


@dataclass
class _Agent:
    """An agent of a session, which keeps what it sees and says. A person types its turns if there is no `client`."""

    game: _Game
    name: str
    client: Completions | None

    @property
    def endpoint(self) -> Endpoint:
        return self.client.endpoint if self.client else _PERSON

    async def complete(self, request: Request, usage: Usage) -> Completed:
        game, seen = self.game, list(request.messages)
        game.seen[game.attempt][self.name] = seen
        game.agent, game.turn = self.name, "model" if self.client else "person"
        try:
            answer = await (self.client.complete(request, usage) if self.client else game.typed())
        finally:
            game.agent, game.turn = "", "model"
        seen.append({"role": "assistant", "content": answer.text})
        return answer

    async def close(self) -> None: ...


@dataclass
class _Game:
    """A session of the playground."""

    id: str
    row: TaskRow
    player: Player
    policy: ChatModel | None  # with counters of its own; None: a person
    has_feedback: bool
    turn: Literal["person", "model", "refine", "done"] = "model"
    agent: str = ""  # who speaks or types now; "" for judge and environment
    attempt: Literal["draft", "refined"] = "draft"
    # attempt -> agent -> what it saw and said so far
    seen: dict[str, dict[str, list[Message]]] = field(default_factory=lambda: {"draft": {}})
    texts: asyncio.Queue[str] = field(default_factory=asyncio.Queue)
    session: Session | None = None  # once the draft has a verdict, or failed
    running: Future[None] | None = None

    def players(self, context: Context) -> Players:
        if context == "feedback":
            self.attempt, self.seen["refined"] = "refined", {}
        client, usage = (self.policy.endpoint_client, self.policy.usage) if self.policy else (None, Usage())
        return Players(lambda seat: OpenAISeat(ChatModel(_Agent(self, seat, client), usage)))

    async def typed(self) -> Completed:
        try:
            return Completed(await asyncio.wait_for(self.texts.get(), IDLE_S), "endpoint")
        except TimeoutError:
            raise JudgeFailure("deadline", f"nobody typed a turn within {IDLE_S:g} s") from None

    async def goes_on(self, session: Session) -> bool:
        """Go on to the feedback; then wait until somebody asks for the refined episode."""
        self.session = session
        if session.feedback is None:
            return self.has_feedback
        self.turn = "refine"
        try:
            await self.typed()
        except JudgeFailure:
            return False
        return True

    async def play(self, gateway: Gateway) -> None:
        client = None if self.player == "talk" else gateway.roles[PARTNER].endpoint_client
        partner = Judge(_Agent(self, PARTNER, client), cached=False)
        gateway = replace(gateway, roles={**gateway.roles, PARTNER: partner})
        task, row = self.row.task, self.row.row
        try:
            self.session = await run_session(task, row, self.players, gateway, RefineSettings(), goes_on=self.goes_on)
        finally:
            self.turn = "done"

    def attempt_state(self, name: str, attempt: Attempt | None) -> dict[str, Any]:
        """Turns of each agent, and the verdict or the failure. Until the end a person sees their own agent alone."""
        masked, talks = self.player != "endpoint" and self.turn != "done", self.player == "talk"
        agents = list(self.seen[name].items())  # the thread of the sessions may add one
        seen = {agent: list(m) for agent, m in agents if not masked or (agent == PARTNER) == talks}
        scores = attempt.to_record().model_dump(mode="json", include=_SCORES) if attempt else {}
        if masked and not talks and scores:
            scores["critique"] = None  # it may name the right answer, which the feedback withholds
        return {"agents": seen, **scores}

    def kept(self, session: Session, as_: str) -> str:
        """The line to keep: a row has the columns of a task file."""
        row, task = self.row.row, self.row.task
        if as_ == "row":
            fields = row.model_dump(mode="json", exclude_none=True)
            return json.dumps({"data_source": task.name, "prompt": task.prompt(row), "extra_info": fields})
        record = session.to_record(self.row.file, self.row.number)
        record.record, record.groups, record.session = row.model_dump(mode="json"), dict(task.groups(row)), self.id
        record.usage = {**({"policy": self.policy.usage} if self.policy else {}), **record.usage}
        return record.to_line()


class Playground:
    """Rows, endpoints and the sessions that are played. `close` ends them.

    Args:
        files: task -> parquet file, or rows.jsonl of `keep`; None: invented rows (`soul.examples`).
        sections: settings of policy, judge, feedback, partner, environment and tasks, as `soul evaluate` takes them.
        folder: where `keep` writes.
    """

    def __init__(self, files: Mapping[str, Path | None], sections: Mapping[str, Any], folder: Path) -> None:
        tasks.configure(sections.get("tasks") or {})
        self.tasks = {name: tasks.load(name) for name in files}
        self.files, self.folder = dict(files), folder
        policy = policy_endpoint(sections.get("policy"))
        if policy is None and sections.get("policy"):
            raise BadSettings("policy.model: name the model at the policy's address.")
        self.policy = policy and ChatModel(EndpointClient(policy))
        # The others inherit from the judge, whose default would be OpenAI's.
        judged = sections.get("judge") or os.environ.get("JUDGE_MODEL_NAME") or os.environ.get("OPENAI_BASE_URL")
        self.gateway = Gateway.connect(GatewaySettings.from_sections(sections))
        self.endpoints: dict[str, Endpoint] = {"policy": policy} if policy else {}
        self.endpoints |= {r: self.gateway.roles[r].endpoint for r in ROLES if judged or sections.get(r)}
        if not judged:
            nobody = {r: Judge(_Nobody(one.endpoint, r)) for r, one in self.gateway.roles.items()}
            own = {r: one for r, one in self.gateway.roles.items() if r in self.endpoints}
            self.gateway = Gateway(self.gateway.settings, {**nobody, **own}, (nobody["judge"],))
        for endpoint in self.endpoints.values():
            endpoint.key()
        self._rows: dict[str, list[TaskRow]] = {}
        self._games: dict[str, _Game] = {}
        self._lock = threading.Lock()  # of `turn` and of the number of sessions
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True, name="playground")
        self._thread.start()

    @classmethod
    def from_arguments(cls, files: Mapping[str, Path | None], settings: Sequence[str], folder: Path) -> Playground:
        """A playground with settings in the form `section.key=value`."""
        return cls(files, sections_of(settings, ["tasks"]), folder)

    def close(self) -> None:
        """End all sessions and close the connections."""

        async def end() -> None:
            running = asyncio.all_tasks() - {asyncio.current_task()}
            for each in running:
                each.cancel()
            await asyncio.gather(*running, return_exceptions=True)
            await self.gateway.close()
            if self.policy:
                await self.policy.close()

        asyncio.run_coroutine_threadsafe(end(), self.loop).result()
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()

    def about(self) -> dict[str, Any]:
        """Tasks, the endpoints that may be asked, and the folder of what is kept."""
        endpoints = {role: {"model": one.model, "address": one.address} for role, one in self.endpoints.items()}
        described = []
        for name, task in self.tasks.items():
            talks, headline = PARTNER in task.calls_per_episode, asdict(task.headline)
            known = {"task": name, "rows": len(self._load(name)), "talks": talks, "headline": headline}
            described.append({**known, "notice": self.notice(name)})
        return {"tasks": described, "endpoints": endpoints, "folder": str(self.folder)}

    def notice(self, task: str) -> str:
        """A warning before the start: nobody gives a verdict, or feedback; "" if both are there."""
        if "judge" in self.endpoints:
            return ""
        if "judge" in self.tasks[task].calls_per_episode:
            return f"A judge scores {task}, and none is configured: there will be no verdict."
        return f"A rule scores {task}. No judge is configured, so there will be no feedback."

    def rows(self, task: str, text: str = "", first: int = 0) -> dict[str, Any]:
        """The rows whose prompt contains the text: how many, and a page of them from the `first`."""
        prompts = ["\n".join(m["content"] for m in row.task.prompt(row.row)) for row in self._load(task)]
        common = len(os.path.commonprefix(prompts)) if len(prompts) > 1 else 0  # the instructions of the task
        found = [i for i, prompt in enumerate(prompts) if text.casefold() in prompt.casefold()]
        starts = {i: max(prompts[i].rfind(" ", 0, common), 0) for i in found[first : first + PAGE]}
        page = [{"row": i, "words": " ".join(prompts[i][at:].split())[:SHOWN]} for i, at in starts.items()]
        return {"total": len(found), "first": first, "rows": page}

    def _load(self, task: str) -> list[TaskRow]:
        if task not in self.files:
            raise CannotPlay(f"The playground has no task {task!r}. It has: {', '.join(self.files)}.")
        if task not in self._rows:
            self._rows[task] = load_rows(task, self.files[task])
        return self._rows[task]

    def start(self, task: str, row: int | Mapping[str, Any], player: Player) -> dict[str, Any]:
        """Start a session of the row with that number, or of a row of your own (its fields)."""
        rows = self._load(task)
        if isinstance(row, int) and not 0 <= row < len(rows):
            raise CannotPlay(f"{task} has the rows 0 to {len(rows) - 1}, and no row {row}.")
        chosen = rows[row] if isinstance(row, int) else parse_row(task, row, "your row")
        self._check(task, player)
        policy = self.policy.scope() if self.policy and player != "me" else None
        id, has_feedback = f"{player}-{secrets.token_hex(6)}", "feedback" in self.endpoints
        with self._lock:
            if len(self._games) >= MOST_SESSIONS:
                finished = [game.id for game in self._games.values() if game.turn == "done"]
                if not finished:
                    raise CannotPlay(f"{MOST_SESSIONS} sessions are open. Finish one of them first.")
                del self._games[finished[0]]
            game = self._games[id] = _Game(id, chosen, player, policy, has_feedback)
        game.running = asyncio.run_coroutine_threadsafe(game.play(self.gateway), self.loop)
        return self.state(id)

    def _check(self, task: str, player: str) -> None:
        calls = self.tasks[task].calls_per_episode
        if player not in get_args(Player):
            raise CannotPlay(f"player={player!r}: use {', '.join(get_args(Player))}.")
        if player != "me" and self.policy is None:
            raise CannotPlay("No policy is configured: set policy.model and policy.base_url.")
        if player == "talk" and PARTNER not in calls:
            raise CannotPlay(f"The policy has no partner in {task}, so you cannot talk to it.")
        needed = {PARTNER, "environment"} & calls.keys() - ({PARTNER} if player == "talk" else set())
        for role in sorted(needed - self.endpoints.keys()):
            raise CannotPlay(f"{task} needs a model as the {role}: set judge.base_url or {role}.base_url.")

    def state(self, session: str) -> dict[str, Any]:
        """The session so far: whose turn it is, and of each attempt the turns, and its verdict or its failure."""
        game = self._game(session)
        if game.running and game.running.done():
            game.running.result()  # raises what a bug of ours raised
        # The turn first: once it is "refine" or "done", the thread of the sessions has set what belongs to it.
        value: dict[str, Any] = {name: getattr(game, name) for name in ("turn", "agent", "attempt", "player")}
        played, row = game.session, game.row
        value |= {"session": game.id, "task": row.task.name, "row": row.number}
        value |= {name: game.attempt_state(name, getattr(played, name, None)) for name in list(game.seen)}
        if played:
            failure = played.feedback_failure
            value |= {"feedback": played.feedback, "feedback_failure": asdict(failure) if failure else None}
        if played and value["turn"] == "done":
            value |= {"target": row.task.target(row.row), "redacted": played.redacted}
        return value

    def say(self, session: str, text: str) -> dict[str, Any]:
        """Take the turn of the agent that you play; CannotPlay if it is not your turn."""
        return self._answer(session, "person", text, "It is not your turn.")

    def refine(self, session: str) -> dict[str, Any]:
        """Play again, with the feedback in the policy's prompt; CannotPlay without feedback or for a second time."""
        return self._answer(session, "refine", "yes", "A session is refined once, after its feedback.")

    def _answer(self, session: str, turn: str, text: str, problem: str) -> dict[str, Any]:
        game = self._game(session)
        with self._lock:
            if game.turn != turn:
                raise CannotPlay(problem)
            game.turn = "model"
        self.loop.call_soon_threadsafe(game.texts.put_nowait, text)
        return self.state(session)

    def keep(self, session: str, kind: Kept) -> dict[str, Any]:
        """Append the row to rows.jsonl, or the judged session to records.jsonl, in the playground's folder."""
        game = self._game(session)
        if kind not in KEPT:
            raise CannotPlay(f"{kind!r}: keep the session as a row or as a record.")
        if game.session is None or game.turn not in ("refine", "done"):
            raise CannotPlay("The session is being played. Keep it once it is judged.")
        file = self.folder / KEPT[kind]
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("a", encoding="utf-8") as lines:
            lines.write(game.kept(game.session, kind) + "\n")
        return {"file": str(file), "kind": kind}

    def _game(self, session: str) -> _Game:
        if session not in self._games:
            raise CannotPlay("This session has ended. Start another one.")
        return self._games[session]


def load_rows(task: str, file: Path | None) -> list[TaskRow]:
    """The rows of a task in a parquet file or in a rows.jsonl of the playground; None: invented rows."""
    if file is None:
        record = examples.load(task).record
        return [parse_row(task, {"index": i, **record(i)}, f"soul examples {task}", i) for i in range(EXAMPLES)]
    if file.suffix == ".jsonl":
        kept = enumerate(read_records(str(file)))
        rows = [parse_row(one.get("data_source"), one.get("extra_info"), str(file), i) for i, one in kept]
    else:
        rows = read_rows([str(file)])
    if not (mine := [row for row in rows if row.task.name == task]):
        raise BadRow(f"{file} has no row of the task {task}. Name another file.")
    return mine
