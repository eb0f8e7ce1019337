"""Our part of the Hydra config, as models: each field has the range, the default and the meaning of its key.

The driver, the trainer and every agent-loop worker read the same values with `Settings.from_config(config)`. Only the
driver resolves the roles of the judge gateway, because that reads its environment (`verl_hooks/worker_config.py`).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

from omegaconf import DictConfig, OmegaConf
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ditto.objectives import objective
from ditto.objectives.options import ObjectiveOptions
from ditto.objectives.spec import Objective
from ditto.policies import FIRST_SEAT, Policy, PolicySettings, SelfPlaySettings, policies_of
from ditto.rows.mixture import MixtureSettings
from soul import tasks
from soul.errors import BadSettings, SoulError, UnknownTask
from soul.judge import ROLES, GatewaySettings
from soul.session import RefineSettings
from soul.validation_errors import setting_problem

ModelT = TypeVar("ModelT", bound=BaseModel)
_OPTIONS = ObjectiveOptions.model_fields.keys()
_CHECKED = ConfigDict(extra="forbid", frozen=True)


class BadConfig(SoulError):
    """The config holds an unknown key or a wrong value."""


class AlgorithmSettings(ObjectiveOptions):
    """Our keys of the section `algorithm`."""

    objective: str = Field(default="grpo", description="What is optimised, by name; see [objectives](objectives.md).")


class MemorySettings(BaseModel):
    """The section `memory`."""

    model_config = _CHECKED

    gpu_gib: float | None = Field(
        default=None,
        gt=0,
        description="GiB of one GPU for the memory plan; null takes the GPU of this machine, else 80 GB.",
    )


class RunSettings(BaseModel):
    """The folder of a run, and the checks before and during training."""

    model_config = _CHECKED

    dir: str = Field(
        default="outputs/${trainer.experiment_name}",
        pattern=r"\S",
        description="The run folder: checkpoints, metrics, traces, judge cache.",
    )
    save_on_signal_s: float = Field(
        default=120.0,
        ge=0,
        description="After SIGTERM or Ctrl-C, seconds in which the current step may end and a checkpoint be saved; "
        "after that the step is dropped, and a second signal ends the run at once. Choose less than your scheduler "
        "waits before SIGKILL.",
    )
    trace_tokens: bool = Field(default=False, description="Write ids and log-probs of all tokens into the traces.")
    preflight: bool = Field(default=True, description="Make one test call to each role before anything starts.")
    phase_timeout_s: float = Field(
        default=3600.0,
        gt=0,
        description="The watchdog ends the run when one phase (rollout and update, weight sync, validation) takes "
        "longer.",
    )
    max_invalid_share: float = Field(
        default=0.5,
        ge=0,
        le=1,
        description="Share of a step's drafts that may fail, for whatever cause (a task's error, a prompt that is too "
        "long, the policy, the judge); above it the run ends with the last failure.",
    )
    max_logprob_diff: float | None = Field(
        default=None,
        gt=0,
        description="Mean difference between the log-probs of actor and rollout engine above which the run ends; null "
        "is 0.05 in float32, else 0.1.",
    )
    max_unchanged_syncs: int | None = Field(
        default=3,
        gt=0,
        description="The run ends when the engine's answers stay the same over this many updates; null turns the check "
        "off.",
    )


class Settings(BaseModel):
    """The settings that DITTO adds to verl's config."""

    model_config = ConfigDict(extra="forbid", frozen=True, arbitrary_types_allowed=True)

    objective: Objective
    options: ObjectiveOptions = ObjectiveOptions()
    refine: RefineSettings = RefineSettings()
    gateway: GatewaySettings = Field(default_factory=lambda: GatewaySettings.from_sections({}))
    run: RunSettings
    mixture: MixtureSettings = MixtureSettings()
    tasks: dict[str, dict[str, Any]] = Field(default_factory=dict)  # task -> options (`soul.tasks.configure`)
    checkpoint_dir: Path | None = None  # trainer.default_local_dir
    policies: tuple[Policy, ...] = ()  # (): one policy has every seat
    self_play: SelfPlaySettings = SelfPlaySettings()

    @property
    def folders(self) -> set[Path]:
        """The folders that the run writes to."""
        return {self.run_dir.absolute(), (self.checkpoint_dir or self.run_dir).absolute()}

    @property
    def run_dir(self) -> Path:
        """The run folder."""
        return Path(self.run.dir)

    @classmethod
    def from_config(cls, config: DictConfig) -> Settings:
        """Read `algorithm`, `refine`, `run`, `tasks`, `data.mixture` and the judge gateway.

        The gateway is the sections of its roles, or `gateway` once the driver has resolved them.
        """
        algorithm = config.algorithm
        options = {key: value for key, value in OmegaConf.to_object(algorithm).items() if key in _OPTIONS}
        values = {
            "objective": objective(algorithm.objective),
            "options": _validated(ObjectiveOptions, "algorithm", options),
            "refine": _section(RefineSettings, "refine", config),
            "gateway": _gateway(config),
            "run": _section(RunSettings, "run", config),
            "tasks": OmegaConf.to_container(config.tasks, resolve=True) if config.get("tasks") else {},
            "mixture": _section(MixtureSettings, "data.mixture", config),
            "checkpoint_dir": OmegaConf.select(config, "trainer.default_local_dir"),
            "policies": _policies(config),
            "self_play": _section(SelfPlaySettings, "self_play", config),
        }
        return _validated(cls, "algorithm", values)

    @property
    def objectives(self) -> list[Objective]:
        """The objectives of the run: one for each policy that trains."""
        return [policy.objective for policy in self.policies if policy.objective] or [self.objective]

    def policy_of(self, seat: str) -> Policy | None:
        """The policy in a seat; None where one policy has every seat."""
        by_seat = {seat: policy for policy in self.policies for seat in policy.seats}
        return by_seat.get(seat, by_seat.get(FIRST_SEAT))

    def of_policy(self, policy: Policy) -> Settings:
        """The settings of one policy's updates."""
        assert policy.objective is not None
        return self.model_copy(update={"objective": policy.objective})

    def in_turn(self, step: int) -> list[Policy]:
        """The policies that train in a step, from 1."""
        trained, steps = [policy for policy in self.policies if policy.objective], self.self_play.turn_steps
        return trained if steps is None else [trained[(step - 1) // steps % len(trained)]]

    @property
    def distillation(self) -> dict[str, Any] | None:
        """Options of the engine in an update (`ditto/model/teaching.py`); None where the objective does not distil."""
        part = self.objective.distillation
        if part is None:
            return None
        return {
            "needs": part.teacher_gives,
            "teacher": part.teacher,
            "options": self.options.comparison(part).model_dump(),
        }

    @property
    def expert_teachers(self) -> list[str]:
        """The checkpoints that score what the policy samples, by their numbers; [] where none does."""
        taught = any(objective.teacher == "experts" for objective in self.objectives)
        return self.options.distill.checkpoints if taught else []

    @property
    def cache_dir(self) -> Path:
        """The folder of the judge's cached answers, unless judge.cache_dir names another folder."""
        return self.run_dir / "judge_cache"

    @property
    def ledger_file(self) -> Path:
        """The file that counts what the run has spent."""
        return self.run_dir / "usage.json"


def _policies(config: DictConfig) -> tuple[Policy, ...]:
    try:
        return policies_of(config)
    except ValidationError as error:
        raise BadConfig(setting_problem(error, "policies", PolicySettings.model_fields)) from error
    except ValueError as error:
        raise BadConfig(f"policies.{error}") from error


def _gateway(config: DictConfig) -> GatewaySettings:
    if "gateway" in config:
        return _section(GatewaySettings, "gateway", config)
    sections = {role: OmegaConf.to_container(config[role], resolve=True) for role in ROLES if role in config}
    try:
        settings = GatewaySettings.from_sections(sections)  # type: ignore[arg-type]
    except BadSettings as error:
        raise BadConfig(str(error)) from error
    for task in settings.by_task:
        try:
            tasks.load(task)
        except UnknownTask as error:
            raise BadConfig(f"judge.by_task: {error}") from error
    for endpoint in settings.endpoints:
        if "@" in urlsplit(endpoint.url).netloc:
            raise BadConfig(
                f"The address of {endpoint.name} contains a user and a password (OPENAI_BASE_URL, or base_url of a "
                "role). A run prints its config and sends it to all its workers, so the config must hold no secret: "
                "use an endpoint that takes a key, and name the key's variable with api_key_env."
            )
    return settings


def _section(model: type[ModelT], name: str, config: DictConfig) -> ModelT:
    section = OmegaConf.select(config, name)
    return _validated(model, name, {} if section is None else OmegaConf.to_container(section, resolve=True))


def _validated(model: type[ModelT], section: str, values: Any) -> ModelT:
    try:
        return model.model_validate(values)
    except ValidationError as error:
        raise BadConfig(setting_problem(error, section, model.model_fields)) from error
