"""Whose turns are trained, and how many: a rule for every source, by name.

`assistant`: the assistant's turns. `human`: the human side; user and assistant are swapped, so that what the template
renders as the assistant is what the human wrote. A row's own `train_role` column comes first, then the config's map of
exact names, then the known human corpora, then the config's default.

Of sources with hundreds of short turns (the trials of an experiment) only the last ones stay turns; what was before is
told in one text (sft/encode/conversation.py).
"""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import get_args

from sft.corpus.settings import Role

# Human corpora of the OdysSim midtraining mixture: what the human wrote is the target.
HUMAN_CORPORA = (
    "wildchat*",
    "lmsys*",
    "oasst*",
    "prism*",
    "alignx*",
    "nectar*",
    "hh_rlhf*",
    "convokit_*",
    "dialogues*",
    "coser*",
    "humanual*",
    "tutoring*",
    "socsci210*",
    "psych101*",
)
# Its task-like parts: the assistant's answer is the target already.
TASK_CORPORA = ("tom_*", "soc_*", "human_llm*", "rm_r1_sft*")
LAST_TURNS = {"psych101*": 20}
ROLES: tuple[str, ...] = get_args(Role)


@cache
def known_role(source: str) -> Role | None:
    """The role of a known corpus."""
    if any(fnmatch.fnmatchcase(source, pattern) for pattern in TASK_CORPORA):
        return "assistant"
    return "human" if any(fnmatch.fnmatchcase(source, pattern) for pattern in HUMAN_CORPORA) else None


@dataclass(frozen=True)
class RoleRules:
    """The rules of a run."""

    default: Role = "assistant"
    by_source: Mapping[str, Role] = field(default_factory=dict)
    last_turns_by_source: Mapping[str, int] = field(default_factory=dict)

    def role(self, source: str) -> Role:
        """Whose turns are trained in a source's rows, where the row itself does not say."""
        return self.by_source.get(source) or known_role(source) or self.default

    def last_turns(self, source: str) -> int:
        """How many of a conversation's last turns stay turns; 0: all."""
        known = (count for pattern, count in LAST_TURNS.items() if fnmatch.fnmatchcase(source, pattern))
        return self.last_turns_by_source.get(source, next(known, 0))
