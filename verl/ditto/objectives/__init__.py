"""The objectives, by the names of `algorithm.objective`. Each module has paper, formula and limits at its top.

Objectives of your own come in through the entry-point group `ditto.objectives` (docs/add_an_objective.md).
"""

from __future__ import annotations

import difflib
from importlib.metadata import entry_points

from ditto.objectives import critique_grpo, ditto, erl, grpo, on_policy_distillation, rltf_sd, sdpo
from ditto.objectives.spec import Objective
from soul.errors import SoulError

_MODULES = (grpo, ditto, rltf_sd, erl, critique_grpo, sdpo, on_policy_distillation)
OBJECTIVES: dict[str, Objective] = {each.name: each for module in _MODULES for each in module.OBJECTIVES}


class UnknownObjective(SoulError):
    """`algorithm.objective` is not the name of an objective."""


def objective(name: str) -> Objective:
    """The objective of that name: one of OBJECTIVES, or one that an installed package registers.

    Raises:
        UnknownObjective: with the nearest names.
    """
    if name in OBJECTIVES:
        return OBJECTIVES[name]
    # Loaded when asked for: such a package imports this one.
    installed = {point.name: point for point in entry_points(group="ditto.objectives")}
    if name in installed:
        loaded: Objective = installed[name].load()
        return loaded
    names = [*OBJECTIVES, *installed]
    near = difflib.get_close_matches(name, names, n=2)
    hint = f" Did you mean {' or '.join(near)}?" if near else ""
    raise UnknownObjective(f"algorithm.objective={name!r}: there is no such objective.{hint} Use {', '.join(names)}.")
