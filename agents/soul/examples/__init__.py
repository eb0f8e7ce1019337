"""Examples of every task: invented rows, and players that answer them well, badly or at random.

    from soul import examples
    example = examples.load("lifechoices")
    row = example.row(0)
    example.player("oracle", row)(example.task.prompt(row))     # "Only one fits. <answer>B</answer>"

    soul examples lifechoices --rows 64 --out lifechoices.parquet
    soul examples all --out try               # a file for every set, where eval.sh finds it

`example.py` defines what an example is; `endpoint.py` stands in for all judges and partners; `contract.py` has the
checks that every task must pass. Add an example for your own task with the entry-point group `soul.examples`.
"""

from functools import cache
from importlib.metadata import entry_points
from pkgutil import resolve_name
from typing import Any

from soul import tasks
from soul.errors import UnknownTask
from soul.examples.example import Example

# Task -> "module:Class" where good and bad answers are not letters; imported only when it is asked for.
_CLASSES: dict[str, str] = {
    "fantom": "one_turn:FanToMExample",
    "socsci210": "one_turn:SocSci210Example",
    "humanllm": "one_turn:HumanLLMExample",
    "mirrorbench": "dialogues:MirrorBenchExample",
    "userllm": "one_turn:UserLLMExample",
    "coser": "dialogues:CoSERExample",
    "sotopia": "dialogues:SotopiaExample",
    "sim_arena_math": "dialogues:SimArenaMathExample",
    "sim_arena_doc": "dialogues:SimArenaDocExample",
    **{name: "one_turn:HumanualExample" for name in tasks.CLASSES if name.partition("-")[0] == "humanual"},
}


@cache
def _external() -> dict[str, Any]:
    return {point.name: point for point in entry_points(group="soul.examples")}


@cache
def names() -> tuple[str, ...]:
    """The tasks that have an example."""
    return tuple(sorted({*tasks.CLASSES, *_external()}))


@cache
def load(name: str) -> Example[Any]:
    """The example of the task with that name (`data_source`). Raises UnknownTask if it has no example."""
    if name in _CLASSES:
        return resolve_name(f"soul.examples.{_CLASSES[name]}")(name)
    if name in tasks.CLASSES:
        return Example(name)
    if name in _external():
        return _external()[name].load()()
    raise UnknownTask(
        f"The task {name!r} has no example: register one in the entry-point group soul.examples (docs/add_a_task.md). "
        f"There are examples of {', '.join(names())}."
    )
