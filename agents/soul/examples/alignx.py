"""AlignX: users with one firm taste in what they read; one example for each of the six sets."""

from __future__ import annotations

from typing import Any, ClassVar

from soul.examples.example import LetterExample, pick
from soul.tasks.alignx import AlignXRow

# How the user is, what the user likes, a response to this taste and one that goes against it.
_TASTES = (
    (
        "Young, works nights.",
        "Blunt and short words",
        "{topic}? Just do it. Done.",
        "If I may, {topic} calls for care.",
    ),
    ("A nurse, three children.", "Warmth", "Oh dear, {topic} is hard. I am with you.", "{topic}: see the manual."),
    ("An engineer.", "Numbers and steps", "{topic}: 1. plan, 2. test, 3. ship. 80 % succeed.", "Feel {topic} deeply."),
    ("A comedian.", "Jokes", "{topic} walks into a bar. The bar says: not again!", "{topic} is a grave matter."),
    ("A retired judge.", "Formal, balanced prose", "On {topic} there is much to weigh.", "lol {topic}, whatever"),
)
_TOPICS = (
    "asking for a raise",
    "moving abroad",
    "leaving a choir",
    "learning Dutch",
    "selling the car",
    "telling the truth",
    "raising bees",
    "a long illness",
    "the first marathon",
    "writing a will",
    "an old quarrel",
    "night school",
    "adopting a cat",
)


class AlignXExample(LetterExample[AlignXRow]):
    """Everything that can be known of a user, a little of each. Which response is A hangs on the row's index alone."""

    name = "alignx"
    told: ClassVar[tuple[str, ...]] = ("demographic", "profile", "icl_pairs", "ugc")
    entries: ClassVar[int] = 2  # earlier choices, and comments

    def record(self, number: int) -> dict[str, Any]:
        person, taste, liked, disliked = pick(_TASTES, number)
        start = number // len(_TASTES)
        topic, *earlier = (pick(_TOPICS, start + step) for step in range(1 + self.entries))
        post = "What do you think of {topic}?"
        known: dict[str, Any] = {
            "demographic": person,
            "profile": f"Likes: {taste}",
            "icl_pairs": [
                {
                    "prompt": post.format(topic=said),
                    "chosen": liked.format(topic=said),
                    "rejected": disliked.format(topic=said),
                }
                for said in earlier
            ],
            "ugc": [{"prompt": post.format(topic=said), "comment": liked.format(topic=said)} for said in earlier],
        }
        return {
            "raw_prompt": post.format(topic=topic),
            "chosen": liked.format(topic=topic),
            "rejected": disliked.format(topic=topic),
            **{field: known[field] for field in self.fields(number)},
        }

    def fields(self, number: int) -> tuple[str, ...]:
        """What the record tells of the user."""
        return self.told


class AlignXDemoExample(AlignXExample):
    """A self-description."""

    name = "alignx_demo"
    told = ("demographic", "profile")


class AlignXPairExample(AlignXExample):
    """Earlier choices."""

    name = "alignx_pair"
    told = ("icl_pairs",)


class AlignXUgcExample(AlignXExample):
    """Comments of the user's own."""

    name = "alignx_ugc"
    told = ("ugc",)


class AlignXArbitraryExample(AlignXExample):
    """Another part of the user in every record."""

    name = "alignx_arbitrary"

    def fields(self, number: int) -> tuple[str, ...]:
        return self.told[number % len(self.told) :]


class AlignXHistory16Example(AlignXExample):
    """A history of sixteen entries."""

    name = "alignx_history16"
    told = ("icl_pairs", "ugc")
    entries = 8
