"""New Hi-ToM stories with questions and gold answers, in the grammar of the benchmark's own stories.

The paper trains on 6,000 examples from 200 stories: 5 question orders x 3 lengths x with and without
deception. Here one story is a cast, three rooms, their objects and the options; its six variants (length
1-3, deception or not) are generated separately, so no two texts are alike.

As in the benchmark's records: chapters have 5, 3 and 4 agents; agents leave in the order in which they entered;
each may move the object just before leaving; in deception stories the chapters 1 / 2 / 1 and 3 (of 1 / 2 /
3) end in talk; every question is about the object of chapter 1. One thing differs on purpose: in the
benchmark a chapter may play in an earlier room without naming the object that is still there, and its gold
answers then contradict each other. Here a later chapter in the same room always names its object.

The gold answers follow from what the characters believe, by the rules of the benchmark (He et al., 2023,
github.com/ying-hui-he/Hi-ToM_dataset). Where its generator and its published gold answers disagree (public claims among
listeners, orders 3 and 4), they follow the gold answers:

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

import random
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from data.rows import Record
from soul.tasks.paratomi import CONTAINERS as KINDS  # Hi-ToM's rooms and kinds of containers are ToMi's
from soul.tasks.paratomi import ROOMS

AGENTS = (
    "Abigail Aiden Alexander Amelia Ava Avery Benjamin Carter Charlotte Chloe Elizabeth Ella Emily Emma Evelyn Hannah "
    "Isabella Isla Jack Jackson Jacob Liam Lily Logan Mila Nathan Noah Owen Sophia William"
).split()
THINGS = (
    "apple asparagus banana beans cabbage carrot cherry corn eggplant grapes green_pepper lemon lettuce lime melon "
    "onion orange peach pear peas persimmon plum potato spinach sweet_potato tangerine tomato turnip watermelon"
).split()
CONTAINERS = [f"{colour}_{kind}" for colour in ("red", "green", "blue") for kind in KINDS]
OPTIONS = 15  # of a question
REVISITS = 0.3  # chance that a later chapter returns to an earlier room and its object
_ROOMS_PER_STORY = 3
# Talk that can end a chapter of n agents: pairs of (speaker, listener) by order of leaving, 0 first. ALL =
# a public claim, OUTSIDER = someone who was not in the room and is told the truth. Sizes 3, 4, 5 are the
# benchmark's (without one form of size 3 that its generator has and no published record shows); size 2 is ours.
ALL, OUTSIDER = -1, -2
_TALKS: dict[int, tuple[tuple[tuple[int, int], tuple[int, int]], ...]] = {
    2: (((0, ALL), (1, 0)), ((1, ALL), (0, 1)), ((1, 0), (0, 1))),
    3: (((1, ALL), (2, 1)), ((2, ALL), (0, 2)), ((0, ALL), (2, OUTSIDER)), ((1, 2), (2, OUTSIDER))),
    4: (((1, ALL), (3, 2)), ((2, ALL), (0, 3)), ((0, ALL), (3, OUTSIDER)), ((1, 2), (3, OUTSIDER))),
    5: (((2, 0), (1, 3)), ((2, ALL), (4, 2)), ((3, ALL), (4, 0))),
}
_TALKING_CHAPTERS = {1: (0,), 2: (1,), 3: (0, 2)}


@dataclass(frozen=True)
class StoryConfig:
    """The shape of the stories; the defaults are the benchmark's.

    Attributes:
        agents: size of the cast, all of it in chapter 1 (2 to 5); chapters 2 and 3 have two and one fewer, at least 2.
        options_fixed: the same options in the same order for every story, so that a container always has the same
            letter; None: fifteen that are drawn for each story.
        distractor_probability: chance of an irrelevant sentence before each sentence, in [0, 1].
        orders: question orders: 0 to 4, at most `agents`.
        lengths: chapters (1 to 3).
        deceptions: whether agents talk (and may lie) after a chapter; both by default.
    """

    agents: int = 5
    options_fixed: Sequence[str] | None = None
    distractor_probability: float = 0.1
    orders: Sequence[int] = (0, 1, 2, 3, 4)
    lengths: Sequence[int] = (1, 2, 3)
    deceptions: Sequence[bool] = (False, True)


@dataclass(frozen=True)
class _Setting:
    """Common facts of the variants of one story. `places`: (room, object, containers of the room)."""

    cast: tuple[str, ...]
    options: tuple[str, ...]
    places: tuple[tuple[str, str, tuple[str, ...]], ...]


@dataclass(frozen=True)
class _Event:
    """An object is put into, seen in, or said to be in a container; `shapes` says whose belief that decides."""

    thing: str
    container: str
    seen: bool
    shapes: Callable[[Sequence[str]], bool]


class BeliefLog:
    """The events of one story in order of time, and the beliefs that follow from them."""

    def __init__(self) -> None:
        self._events: list[_Event] = []

    def see(self, thing: str, container: str, witnesses: Collection[str]) -> None:
        """`witnesses` see `thing` in `container`."""
        self._events.append(_Event(thing, container, True, frozenset(witnesses).issuperset))

    def hear(self, thing: str, container: str, speaker: str, listeners: Collection[str], exits: Sequence[str]) -> None:
        """`speaker` tells `listeners`, after the agents left the object's room in the order `exits`."""
        others = frozenset(listeners) - {speaker}
        believers = {o for o in others if o not in exits or exits.index(o) < exits.index(speaker)}

        def shapes(chain: Sequence[str]) -> bool:
            if len(chain) == 1:
                return chain[0] in believers
            if len(chain) == 2:
                thinker, other = chain
                return (thinker == speaker and other in others) or (thinker in believers and other == speaker)
            return False

        self._events.append(_Event(thing, container, False, shapes))

    def belief(self, chain: Sequence[str], thing: str) -> str:
        """Return where chain[0] thinks chain[1] thinks ... `thing` is; the real place for an empty chain.

        The agents of a chain have seen the object together at least once.
        """
        about = [event for event in self._events if event.thing == thing]
        deciding = [event for event in about if (event.shapes(chain) if chain else event.seen)]
        return deciding[-1].container


class _Writer:
    """Writes the sentences of one variant and logs the beliefs that follow from them."""

    def __init__(self, rng: random.Random, setting: _Setting, config: StoryConfig) -> None:
        self.rng, self.setting, self.config = rng, setting, config
        self.lines: list[str] = []
        self.log = BeliefLog()
        self.now_in: dict[str, str] = {}

    def say(self, sentence: str) -> None:
        # `random() < 0` never holds, so probability 0 really means none.
        if self.rng.random() < self.config.distractor_probability:
            self.lines.append(self._distractor())
        self.lines.append(sentence)

    def _distractor(self) -> str:
        name = self.rng.choice(self.setting.cast)
        return self.rng.choice(
            (
                f"{name} saw a {self.rng.choice(('cat', 'dog', 'monkey', 'mouse'))}.",
                f"{name} lost his {self.rng.choice(('watch', 'gloves', 'phone'))}.",
                f"{name} likes the {self.rng.choice(self.setting.options)}.",
                f"{name} dislikes the {self.rng.choice(THINGS)}.",
            )
        )

    def chapter(self, agents: Sequence[str], place: tuple[str, str, tuple[str, ...]], talk: bool) -> None:
        room, thing, containers = place
        together = f"{', '.join(agents[:-1])} and {agents[-1]}"
        self.say(f"{together} entered the {room}.")
        container = self.now_in.get(thing) or self.rng.choice(containers)
        self.say(f"The {thing} is in the {container}.")
        self.log.see(thing, container, agents)
        for position, agent in enumerate(agents):
            if self.rng.random() < 0.5:
                container = self.rng.choice([other for other in containers if other != container])
                self.say(f"{agent} moved the {thing} to the {container}.")
                self.log.see(thing, container, agents[position:])
            else:
                self.say(f"{agent} made no movements and stayed in the {room} for 1 minute.")
            self.say(f"{agent} exited the {room}.")
        self.now_in[thing] = container
        self.say(f"{together} entered the waiting_room.")
        if talk:
            self._talk(agents, thing, containers)

    def _talk(self, agents: Sequence[str], thing: str, containers: tuple[str, ...]) -> None:
        outsiders = [agent for agent in self.setting.cast if agent not in agents]
        talks = [talk for talk in _TALKS[len(agents)] if outsiders or all(to != OUTSIDER for _, to in talk)]
        for speaking, to in self.rng.choice(talks):
            speaker = agents[speaking]
            container = self.now_in[thing] if to == OUTSIDER else self.rng.choice(containers)
            if to == ALL:
                listeners: Sequence[str] = self.setting.cast
                # Without "the": the benchmark's own wording.
                self.say(f"{speaker} publicly claimed that {thing} is in the {container}.")
            else:
                listeners = [self.rng.choice(outsiders) if to == OUTSIDER else agents[to]]
                self.say(f"{speaker} privately told {listeners[0]} that the {thing} is in the {container}.")
            self.log.hear(thing, container, speaker, listeners, agents)


def generate_examples(n_stories: int, seed: int, config: StoryConfig | None = None) -> list[Record]:
    """`n_stories` stories, each in all variants and question orders of `config`, as `extra_info` dicts.

    With the default config that is 30 rows a story (200 stories = the paper's 6,000). `story_id` is shared by the
    variants of a story, which have the same cast, rooms and options. The first stories stay the same when n_stories
    grows.
    """
    config = config or StoryConfig()
    records: list[Record] = []
    for story_id in range(n_stories):
        setting = _setting(random.Random(f"hitom:{seed}:{story_id}"), config)
        for length in config.lengths:
            for deception in config.deceptions:
                rng = random.Random(f"hitom:{seed}:{story_id}:{length}:{int(deception)}")
                for record in _variant(rng, setting, config, length, deception):
                    records.append({"index": len(records), "story_id": story_id, **record})
    return records


def _setting(rng: random.Random, config: StoryConfig) -> _Setting:
    if config.options_fixed is not None:
        options = list(config.options_fixed)
    else:
        options = rng.sample(CONTAINERS, OPTIONS)
        rng.shuffle(options)
    # A small set of options is shared by all rooms; a room needs a few containers for objects to move among.
    movable = list(options)
    share = len(movable) // _ROOMS_PER_STORY
    rng.shuffle(movable)
    rooms, things = rng.sample(ROOMS, _ROOMS_PER_STORY), rng.sample(THINGS, _ROOMS_PER_STORY)
    places = tuple(
        (room, thing, tuple(movable[i * share : (i + 1) * share] if share >= 3 else movable))
        for i, (room, thing) in enumerate(zip(rooms, things, strict=True))
    )
    return _Setting(tuple(rng.sample(AGENTS, config.agents)), tuple(options), places)


def _variant(rng: random.Random, setting: _Setting, config: StoryConfig, length: int, deception: bool) -> list[Record]:
    writer = _Writer(rng, setting, config)
    visited: list[int] = []
    for chapter, size in enumerate((config.agents, max(2, config.agents - 2), max(2, config.agents - 1))[:length]):
        if visited and rng.random() < REVISITS:
            visited.append(rng.choice(visited))
        else:
            visited.append(max(visited, default=-1) + 1)
        agents = rng.sample(setting.cast, size)
        writer.chapter(agents, setting.places[visited[-1]], deception and chapter in _TALKING_CHAPTERS[length])
    chain = rng.sample(setting.cast, config.agents)
    chains = {order: chain[len(chain) - order :] for order in config.orders}
    thing = setting.places[0][1]
    return [
        {
            "story": "\n".join(f"{number} {line}" for number, line in enumerate(writer.lines, start=1)),
            "question": _question(chains[order], thing),
            "choices": ", ".join(f"{chr(ord('A') + i)}. {option}" for i, option in enumerate(setting.options)),
            "correct_answer": writer.log.belief(chains[order], thing),
            "deception": deception,
            "story_length": length,
            "question_order": order,
        }
        for order in config.orders
    ]


def _question(chain: Sequence[str], thing: str) -> str:
    """The benchmark's wording, with its "really think" in order 1."""
    if not chain:
        return f"Where is the {thing} really?"
    if len(chain) == 1:
        return f"Where does {chain[0]} really think the {thing} is?"
    return f"Where does {' think '.join(chain[:2])} thinks {''.join(f'{a} thinks ' for a in chain[2:])}the {thing} is?"
