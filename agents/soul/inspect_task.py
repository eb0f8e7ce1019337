"""Run SOUL's sets as Inspect tasks: Inspect provides models, concurrency, logs and viewer, SOUL plays and judges.

    pip install -e '.[inspect]'
    inspect eval soul/sotopia -T data=DIR -T limit=100 -T judge.model=gpt-5.4 --model ...
    inspect eval agents/soul/inspect_task.py -T set=my_rows.parquet --model ...
    inspect score LOG --scorer agents/soul/inspect_task.py@verdict -S judge.model=another
    inspect view

Inspect configures the model under test (`--model`, `--temperature`, ...). `soul.judge` configures judge, partner and
environment, by arguments `-T judge.<key>=...`, `-T partner.<key>=...` or by their environment variables; API keys come
only from environment variables. For the same limit and seed, the rows are the same as with `soul evaluate`.

A sample without a verdict is unscored in Inspect: no mean includes it, and `unscored_samples` counts it. A sample's
target is the right answer, and its answer the one that was read, or the policy's last turn. Inspect handles errors of
the model under test (`--retry-on-error`, `--fail-on-error`) and of a judge that is down, rejects its key or has spent
its budget.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from soul import adapters
from soul.errors import BadSettings
from soul.evaluate.run.engine import STOPPING, Stopped
from soul.judge import Gateway, Usage
from soul.judge.ledger import numbers
from soul.judge.roles import sections_of
from soul.message import Message
from soul.policy import Players
from soul.record import AttemptRecord, Failure
from soul.rows.task_files import TaskRow
from soul.session import RefineSettings, play
from soul.suites import soul_v1
from soul.task_types import Episode

try:
    from inspect_ai import Task, task
    from inspect_ai.dataset import MemoryDataset, Sample
    from inspect_ai.hooks import Hooks, RunEnd, hooks
    from inspect_ai.model import (
        ChatMessage,
        ChatMessageAssistant,
        ChatMessageSystem,
        ChatMessageUser,
        ModelOutput,
        get_model,
    )
    from inspect_ai.scorer import Score, Scorer, Target, mean, scorer, stderr
    from inspect_ai.solver import Generate, Solver, TaskState, solver
    from inspect_ai.util import registry_info
except ImportError as error:
    raise adapters.not_installed("soul.inspect_task", "inspect_ai", "inspect") from error

_KINDS = {"system": ChatMessageSystem, "user": ChatMessageUser, "assistant": ChatMessageAssistant}


@task
def soul(
    set: str,
    data: str | None = None,
    limit: int | None = None,
    seed: int = 0,
    deadline: float | None = None,
    **judges: Any,
) -> Task:
    """One set of SOUL.

    Args:
        set: the name of the set, or a parquet file with your own rows.
        data: the folder with the data files; default: DATA_DIR.
        limit: how many rows to draw with the seed; None: all.
        seed: for the draw, and for sampling.
        deadline: how many seconds the play of one episode may take.
        judges: settings of the roles, and `tasks.<task>.<option>`.
    """
    requests = adapters.draw_rows(set, data, _sections(judges), limit, seed) if isinstance(set, str) else []
    names, rows = sorted({request.set for request in requests}), [request.row for request in requests]
    if len(names) != 1:
        raise BadSettings(
            f"set={set!r}: an Inspect task is one set. Run several with inspect_ai.eval([soul(set=name), ...])."
        )
    (name,) = names
    return Task(
        name=f"soul_{name}",
        dataset=MemoryDataset([_sample(row) for row in rows], name=name),
        solver=episode(deadline, **judges),
        scorer=verdict(**judges),
        metadata={"soul_task": rows[0].task.name, "headline": vars(rows[0].task.headline)},
    )


def _register(name: str) -> None:
    """Register a set under its own name: `inspect eval soul/hitom`."""
    # Inspect puts the package's name in front itself, but not for an editable install with another distribution name.
    prefix = "" if "/" in registry_info(soul).name else "soul/"

    @task(name=f"{prefix}{name}")
    def one_set(
        data: str | None = None, limit: int | None = None, seed: int = 0, deadline: float | None = None, **judges: Any
    ) -> Task:
        return soul(name, data, limit, seed, deadline, **judges)


for _name in soul_v1.SETS:
    _register(_name)


@solver
def episode(deadline: float | None = None, **judges: Any) -> Solver:
    """Play the row, with Inspect's model in every seat."""

    async def solve(state: TaskState, generate: Generate) -> TaskState:
        row, gateway = _row_and_gateway(state, judges)
        seats: dict[str, InspectSeat] = {}
        players = Players(lambda name: seats.setdefault(name, InspectSeat()))
        attempt = await play(row.task, row.row, players, gateway, None, RefineSettings(episode_deadline_s=deadline))
        for seat in seats.values():
            if seat.error is not None:
                raise seat.error  # Inspect retries, stops or counts it, depending on its options
        _stop(attempt.failure, state)
        state.store.set("played", attempt.to_record().model_dump(mode="json"))
        state.store.set("usage", {role: usage.to_json() for role, usage in gateway.usage().items()})
        if attempt.episode is not None:
            state.messages = _shown(attempt.episode, seats)
            if outputs := [seat.output for seat in seats.values() if seat.output is not None]:
                state.output = outputs[-1]
        state.completed = True
        return state

    return solve


@scorer(metrics=[mean(), stderr()])
def verdict(**judges: Any) -> Scorer:
    """Judge the episode; the value is the reward, in the task's own range."""

    async def judged(state: TaskState, target: Target) -> Score:
        row, gateway = _row_and_gateway(state, judges)
        played = AttemptRecord.model_validate(state.store.get("played") or {"failure": adapters.CUT_SHORT})
        attempt = await adapters.judge(row, played, gateway)
        episode = attempt.episode
        answer = None if episode is None else row.task.given(row.row, episode) or episode.answer
        _stop(attempt.failure, state)
        usage = {role: Usage.from_json(count) for role, count in (state.store.get("usage") or {}).items()}
        for role, count in gateway.usage().items():
            usage.setdefault(role, Usage()).merge(count)
        metadata: dict[str, Any] = {
            "prompts": [prompt.id for prompt in row.task.prompts],
            "headline": vars(row.task.headline),
            "ended": played.ended,
            "usage": {role: numbers(count) for role, count in usage.items()},
        }
        if attempt.verdict is None:
            assert attempt.failure is not None
            failure = attempt.failure
            reason = f"{failure.stage}:{failure.cause}"
            return Score.unscored(reason=reason, answer=answer, explanation=failure.detail, metadata=metadata)
        record = attempt.to_record()
        metadata |= {
            "metrics": record.metrics,
            "contentless": record.contentless,
            "jury": [opinion.model_dump() for opinion in record.jury],
        }
        return Score(value=attempt.verdict.reward, answer=answer, explanation=record.critique, metadata=metadata)

    return judged


class InspectSeat:
    """A seat that is played by Inspect's model. Each message is converted once, so that the log stores it once."""

    def __init__(self) -> None:
        self.seen: list[ChatMessage] = []
        self.output: ModelOutput | None = None
        self.error: Exception | None = None

    async def say(self, messages: Sequence[Message], base: Sequence[Message] | None = None) -> str:
        try:
            self.output = await get_model().generate(self.converted(messages))
        except Exception as error:
            self.error = error
            raise
        return self.output.completion

    def converted(self, messages: Sequence[Message]) -> list[ChatMessage]:
        """The conversation as Inspect's messages. A conversation is append-only, so only new messages are converted."""
        self.seen += [_KINDS[new["role"]](content=new["content"]) for new in messages[len(self.seen) :]]
        return list(self.seen)


@hooks(name="soul_connections", description="Closes the connections to SOUL's judges at the end of an eval.")
class _Closing(Hooks):
    def enabled(self) -> bool:
        return adapters.has_connections()  # evals without SOUL should not list this hook

    async def on_run_end(self, data: RunEnd) -> None:
        await adapters.disconnect()


def _sections(arguments: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The roles' settings and the tasks' options, from arguments `section.key`."""
    sections = sections_of([f"{key}={json.dumps(value)}" for key, value in arguments.items()], ["tasks"])
    if "policy" in sections:
        raise BadSettings(
            "policy.*: use Inspect's options for the model under test: --model, --model-base-url, --temperature."
        )
    return sections


def _sample(row: TaskRow) -> Sample:
    prompt = InspectSeat().converted(row.task.prompt(row.row))
    return Sample(
        id=row.number,
        input=prompt,
        target=row.task.target(row.row) or "",
        metadata=adapters.to_plain(row),
    )


def _row_and_gateway(state: TaskState, arguments: Mapping[str, Any]) -> tuple[TaskRow, Gateway]:
    """The sample's row, restored from its metadata, and the judges for it."""
    sections = _sections(arguments)
    row = adapters.from_plain(state.metadata, sections, "<Inspect's sample>", int(state.sample_id))
    return row, adapters.connect(sections, row.task.name)


def _stop(failure: Failure | None, state: TaskState) -> None:
    """Raise an error that stops the eval if the failure would hit every further sample too."""
    if failure is not None and failure.cause in STOPPING:
        raise Stopped(f"{failure.detail} (the {failure.stage} of row {state.sample_id})")


def _shown(played: Episode, seats: Mapping[str, InspectSeat]) -> list[ChatMessage]:
    """The conversation for the viewer; several seats follow one another, each under its name."""
    shown: list[ChatMessage] = []
    for name, messages in played.seats.items():
        if len(played.seats) > 1:
            shown.append(ChatMessageSystem(content=f"Conversation of the seat {name!r}:", metadata={"seat": name}))
        shown += seats[name].converted(messages) if name in seats else InspectSeat().converted(messages)
    return shown
