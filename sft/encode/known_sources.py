"""The sources of the OdysSim corpus: which side each of them trains. Its 71 names, in the order of the release.

Source: the table of routes in sft/sft_data.py of github.com/sunnweiwei/OdysSim, the code that trained OSim-8B. There, a
name that is not in the table takes the entry of the first name that it contains, in the order of the table. Here, it
must contain that name as a word: "prismatic" is not "prism", and nobody would notice that the wrong side is trained.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, get_args

Role = Literal["assistant", "human"]
ROLES: tuple[str, ...] = get_args(Role)


@dataclass(frozen=True)
class KnownSource:
    """The training of the rows of a source.

    Attributes:
        role: the trained side.
        last_turns: how many of the last turns stay turns, the earlier ones become one text; 0: all.
        empty_system: rows without a system message get an empty one, so that the chat template adds no default.
    """

    role: Role
    last_turns: int = 0
    empty_system: bool = False


_PERSON = KnownSource("human")
_EXPERIMENT = KnownSource("human", last_turns=20)  # rows have up to 9,601 turns
_TASK = KnownSource("assistant", empty_system=True)
_CHAT = KnownSource("assistant")

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

# In this order: a name that only contains known names takes the first of them.
KNOWN_SOURCES: dict[str, KnownSource] = {
    **dict.fromkeys(_PEOPLE.split(), _PERSON),
    "psych101": _EXPERIMENT,
    "socsci210": _PERSON,
    **dict.fromkeys(_TASKS.split(), _TASK),
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
