"""Our part of the Hydra config, validated: an unknown key or a wrong value is named before anything starts.

The same values are read in the driver, in the trainer and in every agent-loop worker through `Settings.of(config)`.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Literal, TypeVar

from omegaconf import DictConfig, OmegaConf
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from agents.errors import SoulError
from agents.judge import Endpoint
from agents.refine import RefineSettings
from ditto.objectives import AGENT_VERSIONS, Objective, objective

ModelT = TypeVar("ModelT", bound=BaseModel)


class BadConfig(SoulError):
    """The config holds an unknown key or a value that cannot be."""


class JudgeSettings(Endpoint):
    """The judge's endpoint, and how much of it may fail before a run stops."""

    max_failure_rate: float = Field(default=0.3, ge=0, le=1)  # share of a step's sessions

    def endpoint(self) -> Endpoint:
        """The endpoint alone."""
        return Endpoint(**self.model_dump(exclude={"max_failure_rate"}))


class RunSettings(BaseModel):
    """Where a run leaves its traces and metrics, and how long a phase of a step may take."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    dir: str
    phase_timeout_s: float = Field(default=3600.0, gt=0)  # the watchdog ends a phase that takes longer


class Settings(BaseModel):
    """What DITTO adds to verl's config."""

    model_config = ConfigDict(extra="forbid", frozen=True, arbitrary_types_allowed=True)

    objective: Objective
    feedback_coef: float = Field(default=1.0, ge=0)
    refined_old_logp: Literal["recompute", "rollout"] = "recompute"
    refine: RefineSettings = RefineSettings()
    judge: JudgeSettings = JudgeSettings()
    run: RunSettings

    @property
    def run_dir(self) -> Path:
        """The run folder."""
        return Path(self.run.dir)

    @classmethod
    def of(cls, config: DictConfig) -> Settings:
        """Read the sections `algorithm`, `refine`, `judge` and `run` of the whole config.

        Raises:
            BadConfig: naming section and key.
            UnknownObjective: `algorithm.objective` is not in the table.
        """
        algorithm = config.algorithm
        name = algorithm.objective
        version = algorithm.get("agent_version")
        if version is not None:
            if version not in AGENT_VERSIONS:
                raise BadConfig(
                    f"algorithm.agent_version={version!r}: use {' or '.join(AGENT_VERSIONS)}, or objective."
                )
            name = AGENT_VERSIONS[version]
        values = {
            "objective": objective(name),
            "feedback_coef": algorithm.feedback_coef,
            "refined_old_logp": algorithm.refined_old_logp,
            "refine": _section(RefineSettings, "refine", config),
            "judge": _section(JudgeSettings, "judge", config),
            "run": _section(RunSettings, "run", config),
        }
        return _validated(cls, "algorithm", values)

    def judge_endpoint(self) -> Endpoint:
        """The judge that sessions ask. Without refinement a rule-scored task asks nobody, so no key is demanded then;
        a task that asks all the same gets a typed `auth` failure."""
        endpoint = self.judge.endpoint()
        if not self.objective.refines and not os.environ.get(endpoint.api_key_env or ""):
            return endpoint.model_copy(update={"api_key_env": None})
        return endpoint

    def coefficients(self) -> dict[str, float]:
        """The coefficient of each part of the objective's loss."""
        return {
            part.name: 1.0 if part.coefficient is None else float(getattr(self, part.coefficient))
            for part in self.objective.parts
        }


def _section(model: type[ModelT], name: str, config: DictConfig) -> ModelT:
    return _validated(model, name, OmegaConf.to_container(config[name], resolve=True))


def _validated(model: type[ModelT], section: str, values: Any) -> ModelT:
    try:
        return model.model_validate(values)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        key = ".".join([section, *(str(part) for part in first["loc"])])
        message = first["msg"].removeprefix("Value error, ")
        hint = (
            f" Known keys of {section}: {', '.join(model.model_fields)}." if first["type"] == "extra_forbidden" else ""
        )
        raise BadConfig(f"{key}={first['input']!r}: {message}.{hint}") from error
