"""One set of SOUL as an environment of its own: verifiers imports this module for the id soul-hitom."""

from verifiers.v1 import Taskset

from soul.verifiers import SoulEnv, SoulHarness, SoulTask, SoulTasksetConfig
from soul.verifiers import SoulTaskset as AnySet

__all__ = ["HitomTaskset", "SoulEnv", "SoulHarness"]


class HitomConfig(SoulTasksetConfig):
    """The settings of SOUL's sets, for this one."""

    set: str = "hitom"


class HitomTaskset(Taskset[SoulTask, HitomConfig]):
    """The rows of HiToM."""

    load = AnySet.load
