"""The world of generated Hi-ToM stories: the benchmark's vocabulary, and what a caller can choose."""

from collections.abc import Sequence
from dataclasses import dataclass

from soul.tasks.paratomi_story import CONTAINERS as KINDS  # Hi-ToM's rooms and kinds of containers are ToMi's

AGENTS = (
    "Abigail Aiden Alexander Amelia Ava Avery Benjamin Carter Charlotte Chloe Elizabeth Ella Emily Emma Evelyn Hannah "
    "Isabella Isla Jack Jackson Jacob Liam Lily Logan Mila Nathan Noah Owen Sophia William"
).split()
THINGS = (
    "apple asparagus banana beans cabbage carrot cherry corn eggplant grapes green_pepper lemon lettuce lime melon "
    "onion orange peach pear peas persimmon plum potato spinach sweet_potato tangerine tomato turnip watermelon"
).split()
CONTAINERS = [f"{colour}_{kind}" for colour in ("red", "green", "blue") for kind in KINDS]
MAX_AGENTS = 5
HIGHEST_ORDER = 6


@dataclass(frozen=True)
class StoryConfig:
    """The shape of the stories; the defaults are the benchmark's.

    agents: size of the cast, all of it in chapter 1 (2-5); chapters 2 and 3 have two and one fewer, at least 2.
    containers: the only containers that objects are put into; None = 5 of the story's options in each room.
    n_options: options a question (2-26).
    options_fixed: the same options in the same order for every story, so that a container always has the same
        letter; sets n_options.
    distractor_probability: chance of an irrelevant sentence before each sentence, in [0, 1].
    revisit_probability: chance that a later chapter returns to an earlier room and its object, in [0, 1].
    orders: question orders: 0 to 4 (at most `agents`) as in the benchmark, and 5 and 6, which go beyond it. A chain of
        5 or 6 is about three or four agents, so that some of them occur twice ("Ava thinks Ben thinks Ava thinks ...").
    lengths: chapters (1-3).
    deceptions: whether agents talk (and may lie) after a chapter; both by default.
    """

    agents: int = 5
    containers: Sequence[str] | None = None
    n_options: int = 15
    options_fixed: Sequence[str] | None = None
    distractor_probability: float = 0.1
    revisit_probability: float = 0.3
    orders: Sequence[int] = (0, 1, 2, 3, 4)
    lengths: Sequence[int] = (1, 2, 3)
    deceptions: Sequence[bool] = (False, True)

    def __post_init__(self) -> None:
        if self.options_fixed is not None:
            object.__setattr__(self, "n_options", len(self.options_fixed))
        options, containers = self.options_fixed or (), self.containers or ()
        problems = {
            "agents must be 2 to 5": not 2 <= self.agents <= MAX_AGENTS,
            "n_options must be 2 to 26": not 2 <= self.n_options <= 26,
            "n_options leaves no room for all containers": len(containers) > self.n_options,
            "containers needs at least 2 names": self.containers is not None and len(containers) < 2,
            "names of containers and options must be unique": len(set(options)) < len(options)
            or len(set(containers)) < len(containers),
            "every container must be among options_fixed": bool(options) and not set(containers) <= set(options),
            "orders must be distinct, 0 to 6": not _within(self.orders, 0, HIGHEST_ORDER),
            "orders up to 4 need as many agents": any(self.agents < order <= 4 for order in self.orders),
            "orders 5 and 6 need 3 agents": self.agents < 3 and max(self.orders, default=0) > 4,
            "lengths must be distinct, 1 to 3": not _within(self.lengths, 1, 3),
            "deceptions must be distinct and not empty": not _within(self.deceptions, 0, 1),
            "probabilities must lie in [0, 1]": not 0 <= self.distractor_probability <= 1
            or not 0 <= self.revisit_probability <= 1,
        }
        for problem, present in problems.items():
            if present:
                raise ValueError(f"StoryConfig: {problem}; got {self}")


def _within(values: Sequence[int], low: int, high: int) -> bool:
    return bool(values) and len(set(values)) == len(values) and all(low <= value <= high for value in values)
