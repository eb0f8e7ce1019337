"""What the characters of a Hi-ToM story believe: the rules behind the gold answers.

The rules follow the benchmark (He et al., 2023, github.com/ying-hui-he/Hi-ToM_dataset). Where its generator and its
published gold answers disagree (public claims among listeners, orders 3 and 4), they follow the gold answers:

* Sight. An agent sees what happens in a room from entering until leaving it. "A thinks B thinks C thinks the
  object is in ..." is the last place that A, B and C were *all* there to see.
* Trust. A listener believes a speaker who left the room later than the listener did (the speaker saw more).
  Agents who were not in the room at all believe everybody who was.
* Public claim. Listeners who trust the speaker believe the claim, and think that the speaker believes it too.
  The speaker thinks that every listener believes it. What one listener thinks of another does not change.
* Private talk. The speaker thinks that the listener believes it. A listener who trusts the speaker does,
  and thinks that the speaker believes it. Nobody else notices.
* Talk changes beliefs of order 1 and 2 only; orders 3 and 4 depend on what the agents saw together.

An answer is the container in the last event that shapes the belief in question. The tests contain a second
implementation, which keeps tables of beliefs and starts from the text of the story.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Sighting:
    """An object is put into, or seen in, a container while `witnesses` are in the room."""

    thing: str
    container: str
    witnesses: frozenset[str]

    def shapes(self, chain: Sequence[str]) -> bool:
        """Whether this event decides what the chain of agents believes."""
        return self.witnesses.issuperset(chain)


@dataclass(frozen=True)
class Claim:
    """`speaker` tells `listeners`, all agents or one, that the object is in `container`."""

    thing: str
    container: str
    speaker: str
    listeners: frozenset[str]
    believers: frozenset[str]

    def shapes(self, chain: Sequence[str]) -> bool:
        """Whether this event decides what the chain of agents believes."""
        if len(chain) == 1:
            return chain[0] in self.believers
        if len(chain) == 2:
            thinker, other = chain
            return (thinker == self.speaker and other in self.listeners) or (
                thinker in self.believers and other == self.speaker
            )
        return False


def trusts(listener: str, speaker: str, exits: Sequence[str]) -> bool:
    """Whether `listener` believes `speaker` about a room that the agents left in the order `exits`."""
    return listener not in exits or exits.index(listener) < exits.index(speaker)


@dataclass
class BeliefLog:
    """The events of one story in order of time, and the beliefs that follow from them."""

    events: list[Sighting | Claim] = field(default_factory=list)

    def see(self, thing: str, container: str, witnesses: Collection[str]) -> None:
        """`witnesses` see `thing` in `container`."""
        self.events.append(Sighting(thing, container, frozenset(witnesses)))

    def hear(self, thing: str, container: str, speaker: str, listeners: Collection[str], exits: Sequence[str]) -> None:
        """`speaker` tells `listeners`, after the agents left the object's room in the order `exits`."""
        others = frozenset(listeners) - {speaker}
        believers = frozenset(listener for listener in others if trusts(listener, speaker, exits))
        self.events.append(Claim(thing, container, speaker, others, believers))

    def real_place(self, thing: str) -> str:
        """The container that `thing` is in now."""
        return _latest(event for event in self.events if isinstance(event, Sighting) and event.thing == thing)

    def belief(self, chain: Sequence[str], thing: str) -> str:
        """Where chain[0] thinks chain[1] thinks ... `thing` is; the real place for an empty chain.

        Raises LookupError if the agents of the chain never saw the object together.
        """
        if not chain:
            return self.real_place(thing)
        return _latest(event for event in self.events if event.thing == thing and event.shapes(chain))


def _latest(events: Iterable[Sighting | Claim]) -> str:
    """The container of the last of `events`; LookupError if there is none."""
    containers = [event.container for event in events]
    if not containers:
        raise LookupError("this chain of agents has neither seen nor heard where the object is")
    return containers[-1]
