"""Run SOUL's sets and suites in verifiers: verifiers brings model, runner and trainer, SOUL plays and judges.

    pip install -e '.[verifiers]'
    vf-eval soul-gym --env.taskset.set sotopia --env.taskset.data DIR --env.taskset.task.judge.model gpt-5.4 -m ...

    environment = soul.verifiers.load_environment("hitom")

Every turn of every seat goes through verifiers' endpoint, so the trace has its tokens; each seat is a branch of the
trace. The reward is the verdict's, in the task's own range. `trace.metrics` has the verdict's metrics, and
`trace.info["attempt"]` the episode and the critique. If a judge or another model fails, the trace has an error and no
reward. With `--env.refine true` an episode has a second trace: the policy's next attempt, with the feedback.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from openai import AsyncOpenAI

from soul import adapters
from soul.errors import SessionError
from soul.judge import Gateway
from soul.judge.roles import ROLES
from soul.message import Message
from soul.one_turn import ExactTask
from soul.policy import Players
from soul.record import AttemptRecord
from soul.rows.task_files import TaskRow
from soul.session import RefineSettings, play
from soul.task_types import Episode

try:
    import verifiers.v1 as vf
except ImportError as error:
    raise adapters.not_installed("soul.verifiers", "verifiers", "verifiers") from error

__all__ = ["SoulEnv", "SoulHarness", "SoulTaskset"]  # verifiers takes one class of each kind from here
PLUGIN = "soul_gym"  # the module by which verifiers finds these classes: it accepts no dotted names


class SoulData(vf.TaskData):
    """A row (`adapters.to_plain`), and the feedback if this is a second attempt."""

    row: dict[str, Any]
    number: int
    target: str | None = None
    feedback: str | None = None


class SoulTaskConfig(vf.TaskConfig):
    """The models around the policy, as in `soul evaluate`, with keys only by the names of their variables."""

    judge: dict[str, Any] = {}
    feedback: dict[str, Any] = {}
    partner: dict[str, Any] = {}
    environment: dict[str, Any] = {}
    tasks: dict[str, dict[str, Any]] = {}
    """Options of SOUL's tasks: task -> option -> value."""
    deadline: float | None = None
    """Seconds that the play of one episode may take."""


class SoulState(vf.State):
    """The running task, which the harness asks for its row, and its judged attempt."""

    task: Any = None
    judged: Any = None


class SoulTask(vf.Task[SoulData, SoulState, SoulTaskConfig]):
    """One row of a set."""

    @property
    def row(self) -> TaskRow:
        return adapters.from_plain(self.data.row, _sections(self.config), "<verifiers' task>", self.data.number)

    def connect(self) -> Gateway:
        return adapters.connect(_sections(self.config), self.data.row["task"])

    async def setup(self, trace: vf.Trace, runtime: vf.Runtime) -> None:
        trace.state.task = self

    async def validate(self, runtime: vf.Runtime) -> bool | None:
        """Check that the right answer earns full marks, where a rule scores it."""
        row = self.row
        if not isinstance(row.task, ExactTask):
            return None
        said: Message = {"role": "assistant", "content": f"<answer>{row.task.gold(row.row)}</answer>"}
        verdict = await row.task.judge(row.row, Episode({"policy": [said]}), self.connect().judge)
        return verdict.reward == row.task.headline.high

    @vf.reward
    async def verdict(self, trace: vf.Trace) -> float:
        """The verdict's reward. Raises SessionError if there is no verdict: then there is no reward either."""
        row, gateway = self.row, self.connect()
        if not trace.nodes and "attempt" not in trace.info:
            return row.task.headline.worst  # vf-validate asks what a policy earns that says nothing
        played = AttemptRecord.model_validate(trace.info.get("attempt") or {"failure": adapters.CUT_SHORT})
        judged = trace.state.judged = await adapters.judge(row, played, gateway)
        trace.info["attempt"] = judged.to_record().model_dump(mode="json") | {"base": played.base}
        _count(trace, gateway)
        trace.record_metrics(judged.require_verdict().metrics)
        return judged.require_verdict().reward

    async def advise(self, trace: vf.Trace) -> str | None:
        """The feedback on a judged attempt; None if there is none, and `trace.info` says why."""
        gateway = self.connect()
        advice = await adapters.advise(self.row, trace.state.judged, gateway)
        _count(trace, gateway)
        trace.info["feedback"], why = advice.feedback, advice.feedback_failure
        trace.info["feedback_failure"] = why and asdict(why)
        return advice.feedback


def _sections(config: SoulTaskConfig) -> dict[str, dict[str, Any]]:
    return config.model_dump(include={*ROLES, "tasks"})


def _count(trace: vf.Trace, gateway: Gateway) -> None:
    for used in gateway.usage().values():
        tokens = {"prompt_tokens": used.prompt_tokens, "completion_tokens": used.completion_tokens}
        trace.extra_usage.append(vf.Usage(**tokens, cost=used.cost_usd))


class SoulTasksetConfig(vf.TasksetConfig):
    """The rows, drawn as `soul evaluate` does."""

    set: str = "soul_v1"
    """A set, a parquet file, several with commas between, or a suite (paper, soul_v1)."""
    data: str | None = None
    """The folder with the data files; None: DATA_DIR."""
    limit: int | None = None
    """Rows of each set, drawn by the seed; None: those of the suite, or all."""
    seed: int = 0
    task: SoulTaskConfig = SoulTaskConfig()


class SoulTaskset(vf.Taskset[SoulTask, SoulTasksetConfig]):
    def load(self) -> Iterator[SoulTask]:
        config = self.config
        for drawn in adapters.draw_rows(config.set, config.data, _sections(config.task), config.limit, config.seed):
            row, name = drawn.row, f"{drawn.set}/{drawn.row.number}"
            prompt, target = row.task.prompt(row.row), row.task.target(row.row)
            data = SoulData(name=name, row=adapters.to_plain(row), number=row.number, prompt=prompt, target=target)
            yield SoulTask(data, config.task)


class SoulHarness(vf.Harness[vf.HarnessConfig]):
    """The play of a row, in this process: all seats speak through verifiers' endpoint."""

    APPENDS_SYSTEM_PROMPT = True
    EXECUTES_CODE = False
    NEEDS_CONTAINER = False

    async def launch(  # the signature of verifiers
        self, ctx: Any, trace: Any, runtime: Any, endpoint: str, secret: str, mcp_urls: Any, data: SoulData
    ) -> vf.ProgramResult:
        task: SoulTask = trace.state.task
        row, gateway = task.row, task.connect()
        async with AsyncOpenAI(base_url=endpoint, api_key=secret, timeout=None) as client:
            players = Players(lambda name: _Seat(client, ctx.model, data.system_prompt))
            settings = RefineSettings(episode_deadline_s=task.config.deadline)
            attempt = await play(row.task, row.row, players, gateway, data.feedback, settings)
        _count(trace, gateway)
        if trace.stop_condition is None and attempt.failure is not None:
            raise SessionError(attempt.failure.cause, attempt.failure.detail)
        trace.info["attempt"] = attempt.to_record().model_dump(mode="json")
        return vf.ProgramResult(exit_code=0, stdout="", stderr="")


@dataclass(frozen=True)
class _Seat:
    client: AsyncOpenAI
    model: str
    system: str | None  # verifiers' own system prompt (--env.taskset.system-prompt), before the task's

    async def say(self, messages: Sequence[Message], base: Sequence[Message] | None = None) -> str:
        said: Any = [{"role": "system", "content": self.system}, *messages] if self.system else messages
        answer = await self.client.chat.completions.create(model=self.model, messages=said)
        return answer.choices[0].message.content or ""


class SoulEnvConfig(vf.EnvConfig):
    """One agent plays all seats of the policy, in this process."""

    agent: vf.AgentConfig = vf.AgentConfig(runtime=vf.SubprocessConfig())
    refine: bool = False
    """Play every row a second time, with the feedback on the first attempt in the prompt."""


class SoulEnv(vf.Env[SoulEnvConfig]):
    """A draft, and with `refine` the refined episode."""

    async def run(self, task: SoulTask, agents: vf.Agents) -> None:
        draft = await agents.agent.run(task)
        if self.config.refine and draft.ok and (feedback := await task.advise(draft)):
            await agents.agent.run(task.with_data(feedback=feedback))

    async def stop(self) -> None:
        await adapters.disconnect()


def load_environment(
    set: str, data: str | None = None, limit: int | None = None, seed: int = 0, refine: bool = False, **task: Any
) -> SoulEnv:
    """The environment of a set or suite; `task` are settings of `SoulTaskConfig`: judge={"model": "gpt-5.4"}."""
    taskset = SoulTasksetConfig(id=PLUGIN, set=set, data=data, limit=limit, seed=seed, task=SoulTaskConfig(**task))
    return SoulEnv(SoulEnvConfig(taskset=taskset, refine=refine))
