"""SOUL from Python: play a row, score and criticise an answer, evaluate a policy. It needs no torch.

    from soul import api

    def policy(messages):                                # any function from messages to text, also async
        return "They never saw it move. <answer>B</answer>"

    row = api.rows("hitom")[0]                           # invented; api.rows("hitom", "hitom_val.parquet") reads a file
    session = await api.play(row, policy, refine=True)   # draft, verdict, critique, refined answer, verdict
    verdict = await api.score(row, "<answer>B</answer>")
    results = await api.evaluate(policy, ["hitom"], data="try")
    results.frame(), print(results.table()), results.report

`judge` names the models that score, criticise and play partners. It is one of

- None: those of the command line (OPENAI_API_KEY, OPENAI_BASE_URL, JUDGE_MODEL_NAME, and the paper's models);
- sections of settings: {"judge": {"model": "gpt-5.4"}, "partner": {"base_url": "http://127.0.0.1:8000/v1", ...}};
- a function that answers each request in this process: `soul.examples.endpoint.answer` stands in for all of them.

Coroutines run in your event loop (a notebook's `await`, `asyncio.run` in a script), and so does an async policy. The
commands use the same driver.
"""

import asyncio
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd

from soul import tasks
from soul.errors import BadSettings, SessionError
from soul.evaluate import runner
from soul.evaluate.numbers.results import Results
from soul.evaluate.run.options import RunOptions, Sections
from soul.evaluate.run.run_folder import EvaluationRun
from soul.evaluate.tables.run_table import columns_of, run_table
from soul.judge import ROLES, Endpoint, Gateway, GatewaySettings
from soul.one_turn import OneTurnTask
from soul.pages.export import REPORT
from soul.playground import load_rows
from soul.rows.task_files import TaskRow
from soul.session import Attempt, RefineSettings, Session, run_session
from soul.session import play as play_attempt
from soul.session import score as score_attempt
from soul.task import Task
from soul.task_types import Verdict
from soul.testing.doubles import Policy, fake_gateway, scripted_players
from soul.testing.replies import ChatRequest, Reply, Text
from soul.testing.server import FakeOpenAI

Judges = Mapping[str, Mapping[str, Any]] | Callable[[ChatRequest], Reply] | None


def task(name: str) -> Task[Any]:
    """The task of that name; see `soul tasks`. Raises UnknownTask."""
    return tasks.load(name)


def rows(name: str, file: str | Path | None = None) -> list[TaskRow]:
    """The rows of a task: of a task file, or invented ones. Raises BadRow or UnknownTask."""
    return load_rows(task(name).name, None if file is None else Path(file))


async def play(
    row: TaskRow, policy: Policy, *, judge: Judges = None, refine: bool = False, settings: RefineSettings | None = None
) -> Session:
    """Play and judge a row; with `refine`, let the policy try again with the critique in its prompt.

    A failure of a model is in the session (`draft.failure`, `feedback_failure`), and not raised.
    """
    async with gateway(judge) as connected:
        return await run_session(
            row.task, row.row, scripted_players(policy), connected, settings or RefineSettings(), refine=refine
        )


async def score(row: TaskRow, text: str, *, judge: Judges = None) -> Verdict:
    """The verdict on an answer to a row of one turn.

    Raises:
        SessionError: the judge failed. BadSettings: the task has several turns; use `play`.
    """
    session = await play(_one_turn(row), text, judge=judge)
    return session.draft.require_verdict()


async def critique(row: TaskRow, text: str, *, judge: Judges = None) -> str | None:
    """The critique of an answer to a row of one turn; None if the task has none on it.

    Raises:
        SessionError: judge or critic failed. BadSettings: the task has several turns; use `play`.
    """
    asked = iter((True, False))  # go on to the critique, but not to the refined answer

    async def goes_on(session: Session) -> bool:
        return next(asked)

    async with gateway(judge) as connected:
        players, found = scripted_players(text), _one_turn(row)
        session = await run_session(found.task, found.row, players, connected, RefineSettings(), goes_on=goes_on)
    session.draft.require_verdict()
    if session.feedback_failure is not None:
        raise SessionError(session.feedback_failure.cause, session.feedback_failure.detail)
    return session.feedback


async def refine(row: TaskRow, policy: Policy, critique: str, *, judge: Judges = None) -> Attempt:
    """Let the policy play a row with a critique in its prompt, and judge that. A failure is in the attempt."""
    async with gateway(judge) as connected:
        players = scripted_players(policy)("feedback")
        attempt = await play_attempt(row.task, row.row, players, connected, critique, RefineSettings())
        if attempt.failure is None:
            await score_attempt(attempt, row.task, row.row, connected)
    return attempt


@dataclass(frozen=True)
class Evaluation:
    """A finished evaluation.

    Attributes:
        folder: what `soul show`, `soul view` and `soul compare` read.
    """

    folder: Path
    results: Results

    @property
    def report(self) -> Path:
        """The report: one HTML file with every sample."""
        return self.folder / REPORT

    def frame(self) -> pd.DataFrame:
        """One line for each set: score, interval, samples and metrics, as in results.json."""
        return pd.DataFrame.from_dict({n: s.to_json() for n, s in self.results.sets.items()}, orient="index")

    def table(self) -> str:
        """The table that the command prints, as Markdown."""
        run = EvaluationRun.load(self.folder)
        return run_table(self.results, columns_of(run.suite)).markdown()


async def evaluate(
    policy: Policy | Endpoint,
    sets: Sequence[str] = (),
    *,
    judge: Judges = None,
    data: str | Path = "data",
    out: str | Path | None = None,
    name: str = "policy",
    limit: int | None = None,
    n: int = 1,
    seed: int = 0,
) -> Evaluation:
    """Evaluate a policy, with the command's progress, journal, tables and report.

    Args:
        policy: a function from messages to text, or an `Endpoint`. A plain function is called from several threads at
            once, a coroutine function in your event loop.
        sets: names of evaluation sets, or task files; empty: all that `data` has.
        out: the folder for the run's folder, in which a finished sample is not played again; None: a new one.
        limit: rows of each set; None: all.
        n: samples of each row.

    Raises:
        SoulError: no set has a file, an endpoint does not answer, or every verdict failed.
        Exception: the first one that the function raised; the samples without one are kept in the folder.
    """
    folder = Path(out) if out else Path(tempfile.mkdtemp(prefix="soul-"))
    options = RunOptions(
        tuple(sets),
        data=Path(data),
        out=folder,
        name=name,
        limit=limit,
        n=n,
        seed=seed,
        preflight=isinstance(policy, Endpoint),  # a function may know its rows only
    )
    return await asyncio.to_thread(_evaluate, policy, judge, options, asyncio.get_running_loop())


def _evaluate(
    policy: Policy | Endpoint, judge: Judges, options: RunOptions, loop: asyncio.AbstractEventLoop
) -> Evaluation:
    with _policy_endpoint(policy, options.name or "policy", loop) as endpoint, _sections(judge) as sections:
        asked = replace(options, sections=sections)
        settings = runner.settings_of(asked, endpoint)
        folder = runner.folder_of(settings, asked)
        results = runner.run(settings, folder, asked)
        assert results is not None  # that would be a dry run
    return Evaluation(folder, results)


@contextmanager
def _policy_endpoint(policy: Policy | Endpoint, name: str, loop: asyncio.AbstractEventLoop) -> Iterator[Endpoint]:
    """The endpoint; a function answers behind one of its own on this machine, so that one engine plays all policies."""
    if isinstance(policy, Endpoint):
        yield policy
        return

    def reply(request: ChatRequest) -> Reply:
        messages = [{"role": message["role"], "content": message["content"]} for message in request.messages]
        answer = policy if isinstance(policy, str) else policy(messages)  # type: ignore[arg-type]
        if not isinstance(answer, str):  # a coroutine, whose clients belong to the caller's loop
            answer = asyncio.run_coroutine_threadsafe(_awaited(answer), loop).result()
        return Text(answer)

    with FakeOpenAI(reply, model=name) as server:
        try:
            yield server.endpoint()
        finally:
            if server.errors:
                raise server.errors[0]


async def _awaited(answer: Any) -> str:
    return await answer


@contextmanager
def _sections(judge: Judges) -> Iterator[Sections]:
    """The sections of settings; a function answers behind an endpoint of its own."""
    if not callable(judge):
        yield judge or {}
        return
    with FakeOpenAI(judge, model="scripted") as server:
        address = {"model": "scripted", "base_url": server.url, "api_key_env": "none"}
        yield {role: address for role in ROLES}


@asynccontextmanager
async def gateway(judge: Judges = None) -> AsyncIterator[Gateway]:
    """Connect the models that score, criticise and play partners, for a driver of your own (`soul.session`)."""
    found = fake_gateway(judge) if callable(judge) else Gateway.connect(GatewaySettings.from_sections(judge or {}))
    try:
        yield found
    finally:
        await found.close()


def _one_turn(row: TaskRow) -> TaskRow:
    if not isinstance(row.task, OneTurnTask):
        raise BadSettings(f"{row.task.name} has several turns, so one text does not answer a row: use soul.api.play.")
    return row
