"""The models that write and check training items, and their settings.

    drafter         writes wrong options that could be right (TwinVoice)
    filter          answers a drafted question, to see whether it can be answered and needs the history (TwinVoice)
    goal_writer     describes what the user of a conversation wants (MirrorBench)
    intent_writer   writes a high-level sentence in place of a person's message (UserLLM)

The settings are those of a judge (docs/judge.md), on the command line as ROLE.KEY=VALUE: `drafter.model=gpt-5.4-mini`.
A role inherits from `judge` as a task's own judge does, and shares its limits and `judge.budget_usd`. If you name no
model for a role, it has the judge's. If you name no model at all, drafter and filter are the paper's.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Literal, get_args

from soul.judge import Endpoint, GatewaySettings
from soul.judge.roles import VARIABLES, sections_of

Role = Literal["drafter", "filter", "goal_writer", "intent_writer"]
ROLES: tuple[Role, ...] = get_args(Role)
PAPER_MODELS: dict[Role, str] = {"drafter": "gpt-5.4-mini", "filter": "gpt-5.4"}  # appendix C, TwinVoice


def settings_of(words: Sequence[str]) -> GatewaySettings:
    """The settings from words of the form ROLE.KEY=VALUE or judge.KEY=VALUE. The roles are `by_task` entries.

    Raises:
        BadSettings: a section or a key is unknown, or a value invalid.
    """
    sections = sections_of(words, more=ROLES)
    judge = sections.setdefault("judge", {})
    named = "model" in judge or os.environ.get(VARIABLES["judge"]["model"])
    roles = {}
    for role in ROLES:
        paper = {} if named or role not in PAPER_MODELS else {"model": PAPER_MODELS[role]}
        roles[role] = {**paper, **sections.pop(role, {})}
    judge["by_task"] = roles
    return GatewaySettings.from_sections(sections)


def endpoint_of(role: Role, settings: GatewaySettings) -> Endpoint:
    """The model of a role."""
    return settings.by_task[role]
