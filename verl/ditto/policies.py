"""The policies of a run: LoRA adapters on one base model, each with the seats that it plays and its objective.

    policies.user.seats=[policy] policies.user.objective=ditto
    policies.assistant.seats=[partner] policies.assistant.objective=grpo      # none: it stays the base model

Without `policies`, one policy has every seat, and nothing here is used. The first one that trains has PEFT's adapter
`default` and the number that verl gives its only adapter in vLLM, so that verl's own code serves and saves it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from omegaconf import DictConfig, OmegaConf, open_dict
from pydantic import BaseModel, ConfigDict, Field

from ditto.objectives import UnknownObjective, objective
from ditto.objectives.spec import Objective

BASE = "none"  # the objective of a policy that is not trained: it stays the base model
FIRST_SEAT = "policy"  # whoever plays it has every seat that nobody names
ADAPTERS = "actor_rollout_ref.model.lora.policies"  # the adapters' names, for the actor and the servers
FIRST_ADAPTER, FIRST_NUMBER = "default", 123  # verl's, in PEFT and in vLLM
ADAPTER = "ditto_adapter"  # an adapter's number, in a request to a server and in what a sync sends
_NAME = re.compile(r"[a-z][a-z0-9]*")
_CHECKED = ConfigDict(extra="forbid", frozen=True)


class PolicySettings(BaseModel):
    """A policy of the section `policies`."""

    model_config = _CHECKED

    seats: tuple[str, ...] = Field(min_length=1)
    objective: str | None = None  # None: algorithm.objective


class SelfPlaySettings(BaseModel):
    """The section `self_play`: how several policies train."""

    model_config = _CHECKED

    turn_steps: int | None = Field(
        default=None,
        ge=1,
        description="Steps that each policy trains in turn, while the others keep their weights; null trains all of "
        "them in every step.",
    )


@dataclass(frozen=True)
class Policy:
    """A policy of a run with several.

    Attributes:
        seats: the seats of episodes that it plays.
        objective: None: it stays the base model.
        place: among those that train, from 0; -1: it does not.
    """

    name: str
    seats: tuple[str, ...]
    objective: Objective | None
    place: int

    @property
    def adapter(self) -> str:
        """The name of its adapter in PEFT."""
        return adapter_name(self.name, self.place)

    @property
    def number(self) -> int:
        """The number of its adapter in vLLM; 0: it samples from the base model."""
        return FIRST_NUMBER + self.place if self.objective else 0

    @property
    def sampling(self) -> dict[str, Any]:
        """The parameters by which its requests to the rollout server name its adapter."""
        return {"extra_args": {ADAPTER: self.number}}


def adapter_name(policy: str, place: int) -> str:
    """The name in PEFT of the adapter of a policy."""
    return f"policy_{policy}" if place else FIRST_ADAPTER


def policies_of(config: DictConfig) -> tuple[Policy, ...]:
    """The policies of a config, in their order; () where one has every seat.

    Raises:
        ValueError: a name that cannot be an adapter's, a seat of two policies or of none, or no policy that trains.
    """
    found: list[Policy] = []
    for name, section in _section(config).items():
        each = PolicySettings.model_validate(section)
        if not _NAME.fullmatch(name):
            raise ValueError(f"{name}: use small letters and digits, a letter first")
        try:
            chosen = None if each.objective == BASE else objective(each.objective or config.algorithm.objective)
        except UnknownObjective as error:
            raise ValueError(f"{name}: {error}") from error
        place = sum(other.objective is not None for other in found) if chosen else -1
        found.append(Policy(name, each.seats, chosen, place))
    seats = [seat for policy in found for seat in policy.seats]
    if twice := [seat for seat in seats if seats.count(seat) > 1]:
        raise ValueError(f"seats: two policies have {twice[0]!r}; a seat has one")
    if found and FIRST_SEAT not in seats:
        raise ValueError(f"seats: no policy has {FIRST_SEAT!r}, the seat that every task has")
    if found and all(policy.objective is None for policy in found):
        raise ValueError(f"objective: every policy has {BASE}, so nothing would be trained")
    return tuple(found)


def _section(config: DictConfig) -> dict[str, Any]:
    section = OmegaConf.to_container(config.policies, resolve=True) if config.get("policies") else {}
    assert isinstance(section, dict)
    return {str(name): each for name, each in section.items()}


def objectives_of(config: DictConfig) -> list[Objective]:
    """The objectives of a run: one for each policy that trains."""
    trained = [policy.objective for policy in policies_of(config) if policy.objective]
    return trained or [objective(config.algorithm.objective)]


def name_adapters(config: DictConfig) -> None:
    """Write the names of the policies that train where the actor and the rollout servers read them."""
    section = _section(config)
    if names := [name for name, each in section.items() if not isinstance(each, dict) or each.get("objective") != BASE]:
        with open_dict(config):
            OmegaConf.update(config, ADAPTERS, names, force_add=True)


def adapters_of(lora: Mapping[str, Any]) -> list[str]:
    """The adapters' names in PEFT, by their places, from the section `model.lora`; one where no policies are named."""
    return [adapter_name(str(name), place) for place, name in enumerate(lora.get("policies") or [""])]
