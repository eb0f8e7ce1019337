"""Stories for HiToM and ParaToMi: one person leaves a room, and another one then moves a thing."""

from __future__ import annotations

from dataclasses import dataclass

from soul.examples.example import pick, shuffled

_NAMES = ("Mia", "Tom", "Ines", "Karl", "Oona", "Piet", "Ruth")
_ROOMS = ("hall", "attic", "cellar")
_THINGS = ("pear", "rope", "candle", "kettle", "violin")
_CONTAINERS = ("green_box", "red_crate", "tin", "oak_chest", "basket")


@dataclass(frozen=True)
class Moved:
    """Two people and a thing: `leaver` sees where it is and leaves, then `mover` puts it elsewhere."""

    leaver: str
    mover: str
    room: str
    thing: str
    containers: tuple[str, ...]  # where it was, where it is now, and two more

    @property
    def sentences(self) -> list[str]:
        """The sentences of the story."""
        before, after = self.containers[:2]
        return [
            f"{self.leaver} and {self.mover} entered the {self.room}.",
            f"The {self.thing} is in the {before}.",
            f"{self.leaver} exited the {self.room}.",
            f"{self.mover} moved the {self.thing} to the {after}.",
        ]

    def believed(self, chain: tuple[str, ...]) -> str:
        """Where the first person thinks that the second thinks ... the thing is: the last place that all have seen."""
        return self.containers[self.leaver not in chain]


def moved(number: int) -> Moved:
    """The story of that number."""
    leaver, mover = pick(_NAMES, number), pick(_NAMES, number + 1 + number // len(_NAMES) % 6)
    containers = tuple(shuffled(_CONTAINERS, number, "containers")[:4])
    return Moved(leaver, mover, pick(_ROOMS, number), pick(_THINGS, number), containers)
