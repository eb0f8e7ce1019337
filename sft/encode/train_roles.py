"""Which side of a conversation is trained, and how many of its turns: rules by the name of the source.

`assistant`: the assistant's turns. `human`: the human's turns; user and assistant are swapped, so that the template
renders the human's words as the assistant's. A row's own `train_role` column comes first, then the config's map of
exact names, then the known human corpora, then the config's default.

In sources with hundreds of short turns (the trials of an experiment) only the last ones stay turns; the earlier ones
become one text (sft/encode/conversation.py).
"""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Literal, get_args

Role = Literal["assistant", "human"]

# Human corpora of the OdysSim midtraining mixture: the human's words are the target.
HUMAN_CORPORA = (
    "wildchat* lmsys* oasst* prism* alignx* nectar* hh_rlhf* convokit_* dialogues* coser* humanual* tutoring* "
    "socsci210* psych101*"
).split()
# The task-like parts of that mixture: the assistant's answer is already the target.
TASK_CORPORA = ("tom_*", "soc_*", "human_llm*", "rm_r1_sft*")
LAST_TURNS = {"psych101*": 20}
ROLES: tuple[str, ...] = get_args(Role)


@cache
def known_role(source: str) -> Role | None:
    """The trained side of a known corpus; None if the corpus is not known."""
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
        """The trained side in rows of a source that have no `train_role` of their own."""
        return self.by_source.get(source) or known_role(source) or self.default

    def last_turns(self, source: str) -> int:
        """How many of a conversation's last turns stay turns; 0: all."""
        known = (count for pattern, count in LAST_TURNS.items() if fnmatch.fnmatchcase(source, pattern))
        return self.last_turns_by_source.get(source, next(known, 0))
