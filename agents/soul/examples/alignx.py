"""AlignX: users with one firm taste in what they read; an example for the task and for each of its five sets."""

from __future__ import annotations

from typing import Any, ClassVar

from soul.examples.example import LetterExample, pick
from soul.tasks.alignx import AlignXRow
from soul.tasks.variants import variant

# The user, their taste, a response that suits this taste and one that does not.
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
    "asking for a raise, moving abroad, leaving a choir, learning Dutch, selling the car, telling the truth, "
    "raising bees, a long illness, the first marathon, writing a will, an old quarrel, night school, adopting a cat"
).split(", ")


class AlignXExample(LetterExample[AlignXRow]):
    """Rows with every kind of information about a user. The row's index alone decides which response is A."""

    name = "alignx"
    user_fields: ClassVar[tuple[str, ...]] = ("demographic", "profile", "icl_pairs", "ugc")
    entries: ClassVar[int] = 2  # earlier choices, and comments

    def record(self, number: int) -> dict[str, Any]:
        person, taste, liked, disliked = pick(_TASTES, number)
        start = number // len(_TASTES)
        topics = (pick(_TOPICS, start + step) for step in range(1 + self.entries))
        texts = {"prompt": "What do you think of {topic}?", "chosen": liked, "rejected": disliked}
        now, *earlier = ({key: text.format(topic=topic) for key, text in texts.items()} for topic in topics)
        known: dict[str, Any] = {
            "demographic": person,
            "profile": f"Likes: {taste}",
            "icl_pairs": earlier,
            "ugc": [{"prompt": pair["prompt"], "comment": pair["chosen"]} for pair in earlier],
        }
        return {
            "raw_prompt": now["prompt"],
            "chosen": now["chosen"],
            "rejected": now["rejected"],
            **{field: known[field] for field in self.fields(number)},
        }

    def fields(self, number: int) -> tuple[str, ...]:
        """The fields of the record that describe the user."""
        return self.user_fields


class AlignXArbitraryExample(AlignXExample):
    """Rows that describe the user in varying ways."""

    name = "alignx_arbitrary"

    def fields(self, number: int) -> tuple[str, ...]:
        return self.user_fields[number % len(self.user_fields) :]


AlignXDemoExample = variant(
    AlignXExample, "AlignXDemoExample", name="alignx_demo", user_fields=("demographic", "profile")
)
AlignXPairExample = variant(AlignXExample, "AlignXPairExample", name="alignx_pair", user_fields=("icl_pairs",))
AlignXUGCExample = variant(AlignXExample, "AlignXUGCExample", name="alignx_ugc", user_fields=("ugc",))
AlignXHistory16Example = variant(
    AlignXExample, "AlignXHistory16Example", name="alignx_history16", user_fields=("icl_pairs", "ugc"), entries=8
)
