"""Examples of every task: invented rows, and players that answer them well, badly or at random.

    from soul import examples
    example = examples.load("lifechoices")
    row = example.row(0)
    example.player("oracle", row)(example.task.prompt(row))     # "Only one fits. <answer>B</answer>"

    python -m soul.examples lifechoices --rows 64 --out lifechoices.parquet
    python -m soul.examples all --out try               # a file for every set, where eval.sh finds it

`example.py` defines what an example is; `endpoint.py` stands in for all judges and partners. Add an example for your
own task with the entry-point group `soul.examples`.
"""

from __future__ import annotations

import importlib
from functools import cache
from importlib.metadata import entry_points
from typing import Any

from soul.examples.example import Example

_ALIGNX = ("demo", "pair", "ugc", "arbitrary", "history16")
_HUMANUAL = ("book", "chat", "email", "news", "opinion", "politics")

# Task -> "module:Class"; imported only when it is asked for.
_CLASSES: dict[str, str] = {
    "coser": "soul.examples.coser:CoSERExample",
    "sotopia": "soul.examples.sotopia:SotopiaExample",
    "lifechoices": "soul.examples.lifechoices:LifeChoicesExample",
    "hitom": "soul.examples.hitom:HiToMExample",
    "paratomi": "soul.examples.paratomi:ParaToMiExample",
    "fantom": "soul.examples.fantom:FanToMExample",
    "mistakes": "soul.examples.mistakes:MistakesExample",
    "twinvoice": "soul.examples.twinvoice:TwinVoiceExample",
    "social_r1": "soul.examples.social_r1:SocialR1Example",
    "behavior_chain": "soul.examples.behavior_chain:BehaviorChainExample",
    "alignx": "soul.examples.alignx:AlignXExample",
    **{f"alignx_{kind}": f"soul.examples.alignx:AlignX{kind.capitalize()}Example" for kind in _ALIGNX},
    "socsci210": "soul.examples.socsci210:SocSci210Example",
    "humanllm": "soul.examples.humanllm:HumanLLMExample",
    "userllm": "soul.examples.userllm:UserLLMExample",
    "mirrorbench": "soul.examples.mirrorbench:MirrorBenchExample",
    "sim_arena_math": "soul.examples.sim_arena:SimArenaMathExample",
    "sim_arena_doc": "soul.examples.sim_arena:SimArenaDocExample",
    "humanual": "soul.examples.humanual:HumanualExample",
    **{f"humanual-{kind}": f"soul.examples.humanual:Humanual{kind.capitalize()}Example" for kind in _HUMANUAL},
}


@cache
def _external() -> dict[str, Any]:
    return {point.name: point for point in entry_points(group="soul.examples")}


@cache
def names() -> tuple[str, ...]:
    """The tasks that have an example."""
    return tuple(sorted({*_CLASSES, *_external()}))


@cache
def load(name: str) -> Example[Any]:
    """The example of the task with that name (`data_source`).

    Raises:
        KeyError: the task has no example.
    """
    if name in _CLASSES:
        module, _, attribute = _CLASSES[name].partition(":")
        return getattr(importlib.import_module(module), attribute)()
    if name in _external():
        return _external()[name].load()()
    raise KeyError(f"no example of the task {name!r}; there are examples of {', '.join(names())}")
