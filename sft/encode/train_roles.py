"""The trained side of a conversation: rules by the name of the source. A source without a rule is an error.

`assistant`: the assistant's turns. `human`: the human's turns; user and assistant are swapped, so that the template
renders the human's words as the assistant's. The first of these that says something holds: the row's own `train_role`
column, the known sources, `data.default_train_role`.

The known sources are the 71 names of the OdysSim corpus, in the order of the release, from the table of routes in
sft/sft_data.py of github.com/sunnweiwei/OdysSim, the code that trained OSim-8B. There, a name that is not in the table
takes the entry of the first name that it contains, in the order of the table. Here, it must contain that name as a
word: "prismatic" is not "prism", and nobody would notice that the wrong side is trained.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, get_args

from soul.errors import SoulError

Role = Literal["assistant", "human"]
ROLES: tuple[str, ...] = get_args(Role)
UNNAMED = "unnamed"  # the source of rows without a data_source


class UnknownSource(SoulError):
    """No rule says which side of a source is trained; the message names the file, the source and how to say it."""


@dataclass(frozen=True)
class SourceRule:
    """The training of the rows of a source.

    Attributes:
        role: the trained side.
        origin: what says so, for the plan.
        last_turns: how many of the last turns stay turns, the earlier ones become one text; 0: all.
        empty_system: rows without a system message get an empty one, so that the chat template adds no default.
    """

    role: Role
    origin: str = "known source"
    last_turns: int = 0
    empty_system: bool = False


_PEOPLE = """
    coser
    wildchat wildchat_v1 lmsys oasst1 oasst2 prism alignx nectar hh_rlhf
    dialogue dailydialog cornell_movie empathetic
    humanual humanual_book humanual_chat humanual_email humanual_news humanual_opinion humanual_politics
    experiment
"""
_TASKS = """
    human_llm
    tom_from_coser tom_socialiqa tom_mindgames tom_moralstories tom_fantom tom_hitom tom_paratomi tom_mmtom tom_sotopia
    soc_sotopia_tom_silver soc_haico soc_persona_conflicts soc_cornell soc_sotopia_pi_bc
    rm_r1_sft
    tom_characterllm tom_grimulkan tom_tominli
"""
_LESSONS = "education_dialogue mathdial studychat"
_CONVOKIT = """
    IDEA-NTHU-unintended-offense-tweets casino-corpus chromium-corpus conversations-gone-awry-cmv-corpus
    conversations-gone-awry-cmv-corpus-large conversations-gone-awry-corpus emotional-support friends-corpus
    mediasum-corpus npr-2p-corpus parliament-corpus persuasionforgood-corpus reddit-coarse-discourse-corpus
    reddit-corpus-small small-pool supreme-corpus switchboard-corpus tennis-corpus wiki-articles-for-deletion-corpus
    wiki-corpus wikiconv-2018 winning-args-corpus
"""
_PERSON, _CHAT = SourceRule("human"), SourceRule("assistant")
# In this order: a name that only contains known names takes the first of them.
KNOWN_SOURCES: dict[str, SourceRule] = {
    **dict.fromkeys(_PEOPLE.split(), _PERSON),
    "psych101": SourceRule("human", last_turns=20),  # experiments; rows have up to 9,601 turns
    "socsci210": _PERSON,
    **dict.fromkeys(_TASKS.split(), SourceRule("assistant", empty_system=True)),
    **dict.fromkeys(_LESSONS.split(), _PERSON),
    **dict.fromkeys((f"convokit_{corpus}" for corpus in _CONVOKIT.split()), _PERSON),
    **dict.fromkeys("sotopia chat step35_flash_sft".split(), _CHAT),
}


@lru_cache(maxsize=4096)
def known_names(source: str) -> Sequence[str]:
    """The known names whose entries a source may take: its own, else those it contains, in the table's order.

    A name counts as contained if no letter or digit touches it: "chat" is in "my_chat-v2", not in "wildchat".
    """
    if source in KNOWN_SOURCES:
        return [source]
    return [name for name in KNOWN_SOURCES if re.search(rf"(?<![^\W_]){re.escape(name)}(?![^\W_])", source)]


@dataclass(frozen=True)
class RoleRules:
    """The rules of a run; `default` is data.default_train_role (None: a source that nothing names is an error)."""

    default: Role | None = None

    def rule(self, source: str, file: str) -> SourceRule:
        """The rule for a source's rows that have no `train_role` of their own; `file` is for the error."""
        names = known_names(source)
        roles = {KNOWN_SOURCES[name].role for name in (*names[:1], *sorted(names, key=len)[-1:])}
        known = KNOWN_SOURCES[names[0]] if len(roles) == 1 else None
        if known and source in KNOWN_SOURCES:
            return known
        if known and self.default in (None, known.role):
            return SourceRule(known.role, f"like {names[0]}", known.last_turns, known.empty_system)
        if known or not self.default:
            raise UnknownSource(_unknown(source, file, self.default))
        return SourceRule(self.default, "data.default_train_role")


def source_of(value: object) -> str:
    """The source of a row by its value of `data_source`."""
    return str(value) if value else UNNAMED


def _unknown(source: str, file: str, default: Role | None) -> str:
    """Say why no rule holds for a source, and what to do."""
    why = "no rule says which side of it is trained"
    if names := known_names(source):
        sides = ", ".join(f"{name} ({KNOWN_SOURCES[name].role})" for name in names)
        why = f"its name contains known sources: {sides}; data.default_train_role={default}"
    called = "rows without a data_source" if source == UNNAMED else f"source {source!r}"
    return (
        f"{file}: {called}: {why}. Give its rows a column train_role: assistant, or human to train the person's "
        "turns. data.default_train_role=assistant holds for all sources that nothing names."
    )
